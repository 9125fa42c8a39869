"""One view that takes an order."""

from django.urls import path
from orders.views import take

urlpatterns = [path("orders/<str:customer>", take)]
