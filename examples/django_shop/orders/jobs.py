"""The jobs of this application: found because the module is called `jobs`."""

from duly import Every
from duly.integrations.django import scheduler
from orders.models import Order


@scheduler.job(retry=3)
def confirm(order_id: int) -> str:
    order = Order.objects.get(pk=order_id)
    order.confirmed = True
    order.save()
    return f"confirmed {order.customer}"


@scheduler.job
async def count() -> int:
    return await Order.objects.acount()


@scheduler.job(Every(hours=1))
def forget_unconfirmed() -> None:
    Order.objects.filter(confirmed=False).delete()
