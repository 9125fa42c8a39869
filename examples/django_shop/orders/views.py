from django.db import transaction
from django.http import HttpRequest, JsonResponse

from duly.integrations.django import on_commit
from orders.jobs import confirm
from orders.models import Order


@transaction.atomic
def take(request: HttpRequest, customer: str) -> JsonResponse:
    order = Order.objects.create(customer=customer)
    on_commit(confirm).submit(order_id=order.pk)
    return JsonResponse({"order": order.pk}, status=201)
