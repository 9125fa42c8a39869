"""A small project's settings; what concerns Duly is at the end."""

import os
from pathlib import Path

DATA = Path(os.environ.get("SHOP_DATA", "."))

SECRET_KEY = os.environ.get("SECRET_KEY", "only-for-this-example")
ALLOWED_HOSTS = os.environ.get("ALLOWED_HOSTS", "localhost,127.0.0.1").split(",")
ROOT_URLCONF = "shop.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DATA / "shop.sqlite3"}}

INSTALLED_APPS = ["duly.integrations.django", "orders"]
DULY = {"URL": f"sqlite:///{DATA}/duly.db", "CONFIG": {"max_concurrent": 4}}
