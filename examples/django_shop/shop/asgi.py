"""The project under an ASGI server, with a node of the scheduler inside: `uvicorn shop.asgi:application`."""

import os

from django.core.asgi import get_asgi_application

from duly.integrations.asgi import Alongside

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django_application = get_asgi_application()

from duly.integrations.django import scheduler  # noqa: E402  # after Django has read its settings

application = Alongside(django_application, scheduler)
