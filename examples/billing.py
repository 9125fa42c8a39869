"""Exactly once: the invoice and the completion of the run commit in one transaction, or neither does."""

from duly import Context, Cron, Scheduler

scheduler = Scheduler("sqlite:///billing.db")


@scheduler.job()
async def mail_invoice(customer: int) -> None:
    print(f"mailing the invoice of customer {customer}")


@scheduler.job(Cron("0 6 1 * *"), delivery="exactly_once")
async def bill_customers(ctx: Context) -> None:
    async with ctx.transaction() as tx:
        await tx.execute("CREATE TABLE IF NOT EXISTS invoices (customer INTEGER, month TEXT, UNIQUE (customer, month))")
        for customer in (1, 2, 3):
            await tx.execute("INSERT INTO invoices VALUES (?, ?)", (customer, f"{ctx.due:%Y-%m}"))
            await tx.submit(mail_invoice, {"customer": customer})  # exists only if all of this commits
