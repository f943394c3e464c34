"""A shop in one file: a page of orders from SQLite, through the ORM and a template."""

import os

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application

settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("DATABASE", "shop.db")}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    ROOT_URLCONF=__name__,
    SECRET_KEY="only for this example",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
)
django.setup()

from django.db import connection, models  # noqa: E402
from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.template import Context, Template  # noqa: E402
from django.urls import path  # noqa: E402


class Order(models.Model):
    customer = models.CharField(max_length=100)
    note = models.TextField()

    class Meta:
        app_label = "shop"


PAGE = Template("{% for order in orders %}<tr><td>{{ order.id }}<td>{{ order.customer }}<td>{{ order.note }}\n{% endfor %}")


def orders(request: HttpRequest, first: int) -> HttpResponse:
    return HttpResponse(PAGE.render(Context({"orders": Order.objects.filter(id__gte=first)[:5000]})))


def fill() -> None:
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    Order.objects.bulk_create(Order(customer=f"customer {i % 999}", note="x" * (i * 37 % 900)) for i in range(20_000))


urlpatterns = [path("orders/<int:first>", orders)]
application = get_wsgi_application()
