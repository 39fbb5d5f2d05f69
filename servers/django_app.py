"""A Django project in one file: sessions and users in a database, and peers for the staff.

    python servers/django_app.py --port 8000 --database /tmp/example.sqlite3 --staff ann:secret --user bob:hidden

Logging in is a POST to /login, with the token of the form that a GET of it shows. `/ws` is for the staff: others are
refused with 403, and who is not logged in with 401, before there is a connection.

A connection may last for days. So the view gives its database connection back before it serves, and a handler takes one
of its own for as long as it needs it.
"""

from __future__ import annotations

import argparse
import secrets
import signal
from typing import Any

import django
import gevent
from django.conf import settings

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ],
    ROOT_URLCONF=__name__,
    SECRET_KEY=secrets.token_hex(),
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "example.sqlite3"}},
)
django.setup()

from django.contrib.auth import authenticate, get_user_model  # noqa: E402
from django.contrib.auth import login as log_in  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.db import connections  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.middleware.csrf import get_token  # noqa: E402
from django.urls import path  # noqa: E402

from muxws_green import SameOrigin, Server, Stream, UpgradeRefused, accept, upgradable  # noqa: E402


def index(request: Any) -> HttpResponse:
    """An ordinary view."""
    return HttpResponse(f"you are {request.user}", content_type="text/plain")


def login(request: Any) -> HttpResponse:
    """A form, and what it sends."""
    if request.method != "POST":
        token = f'<input type=hidden name=csrfmiddlewaretoken value="{get_token(request)}">'
        return HttpResponse(f"<form method=post>{token}<input name=user><input name=password type=password></form>")
    user = authenticate(request, username=request.POST["user"], password=request.POST["password"])
    if user is None:
        return HttpResponse("no", status=401)
    log_in(request, user)
    return HttpResponse("in")


def connect(request: Any) -> HttpResponse:
    """Serve one connection for as long as it lives."""
    user = request.user
    if not user.is_authenticated:
        return HttpResponse("log in first", status=401)
    if not user.is_staff:
        return HttpResponse("for the staff only", status=403)
    try:
        peer = accept(request.environ, allowed_origins=SameOrigin())
    except UpgradeRefused as error:
        return HttpResponse(error.reason, status=error.status, headers=dict(error.headers))
    peer.tags["user"] = user.get_username()
    peer.on_stream(handle)
    # Django would do it when the request ends, and that may be in a week.
    connections.close_all()
    return HttpResponse(peer.serve())


def handle(payload: Any, stream: Stream) -> None:
    """Answer one stream from the database."""
    # In a thread of the hub's pool: a query blocks the whole thread in which it runs, and this one has other peers.
    stream.reply(gevent.get_hub().threadpool.apply(names, (payload["staff"],)))


def names(staff: bool) -> list[str]:
    """The users that are of the staff, or are not."""
    try:
        found = get_user_model().objects.filter(is_staff=staff).order_by("username")
        return [user.get_username() for user in found]
    finally:
        connections.close_all()


urlpatterns = [path("", index), path("login", login), path("ws", connect)]

# Outermost, so that nothing of what Django answers after a connection gets into it.
application = upgradable(get_wsgi_application())


def main() -> None:
    """Make the database and its users, and serve until told to stop."""
    parser = argparse.ArgumentParser(description="A Django project with peers.")
    parser.add_argument("--port", type=int, default=8000, help="0 lets the system choose (default: %(default)s)")
    parser.add_argument("--database", default="example.sqlite3", help="file of the database (default: %(default)s)")
    parser.add_argument("--staff", action="append", default=[], metavar="NAME:PASSWORD", help="a user of the staff")
    parser.add_argument("--user", action="append", default=[], metavar="NAME:PASSWORD", help="another user")
    options = parser.parse_args()
    connections.databases["default"]["NAME"] = options.database
    call_command("migrate", verbosity=0)
    manager = get_user_model().objects
    for staff, pairs in ((True, options.staff), (False, options.user)):
        for name, _, password in (pair.partition(":") for pair in pairs):
            if not manager.filter(username=name).exists():
                manager.create_user(name, password=password, is_staff=staff)
    connections.close_all()

    server = Server(("127.0.0.1", options.port), application, log=None)
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, server.drain, 10.0)
    server.start()
    print(f"listening on http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
