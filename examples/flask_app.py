"""Flask: requests submit and look with `.sync`; `duly run flask_app:scheduler` does the work beside the web server."""

from flask import Flask

from duly import RunNotFound, Scheduler

scheduler = Scheduler("sqlite:///shop.db")
app = Flask(__name__)


@scheduler.job
def send_mail(to: str, subject: str) -> str:
    with app.app_context():  # whatever needs the application: its settings, its extensions, url_for
        return f"{app.name} sent {subject!r} to {to}"


@app.post("/orders/<customer>")
def order(customer: str):
    run = send_mail.sync.submit(to=customer, subject="Thank you")
    later = send_mail.options(delay=86400, dedupe_key=f"ask-{customer}").sync
    later.submit(to=customer, subject="How was it?")
    return {"run": run.id}, 202


@app.get("/runs/<run_id>")
def show(run_id: str):
    run = scheduler.sync.get_run(run_id)
    return {"state": run.state.value}


@app.errorhandler(RunNotFound)
def unknown(error: RunNotFound):
    return {"error": str(error)}, 404
