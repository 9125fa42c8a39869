from bench.side_by_side.command import main

if __name__ == "__main__":
    main()
