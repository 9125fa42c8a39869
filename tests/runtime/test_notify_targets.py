"""Targets of notifications: signed webhooks, mail, commands; what they refuse, and what they never show."""

import asyncio
import email
import hashlib
import hmac
import json
import socket
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from email import policy

import pytest
from tests.runtime.notify_servers import Mailbox, Receiver

from duly import ConfigurationError, DeliveryRejected, Mail, Notification, NotifyCommand, SchedulerConfig, Webhook
from duly.model.notification import Concern, NotificationKind
from duly.runtime.notify.tables import target_of, targets_of

MESSAGE = Notification(
    id="5f-1",
    kind=NotificationKind.FAILURE,
    text="report failed: ValueError: boom",
    at=datetime(2027, 3, 1, 12, tzinfo=UTC),
    job="report",
    count=3,
    run_id="0" * 26,
    error="ValueError: boom",
)


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def mailbox():
    mailbox = Mailbox()
    yield mailbox
    mailbox.close()


def verified(secret, headers, body, now=None, tolerance=300):
    """What a receiver does, as docs/notifications.md shows it."""
    parts = dict(part.split("=", 1) for part in headers["Duly-Signature"].split(","))
    expected = hmac.new(secret.encode(), parts["t"].encode() + b"." + body, hashlib.sha256).hexdigest()
    fresh = abs((now or time.time()) - int(parts["t"])) <= tolerance
    return fresh and hmac.compare_digest(expected, parts["v1"])


# --- webhooks


async def test_a_webhook_is_signed_and_has_an_id(receiver):
    await Webhook(receiver.url, secret="s3cret", headers={"X-Team": "ops"}).send(MESSAGE)
    [(path, headers, body)] = receiver.requests
    assert path == "/hook?key=hidden"
    assert headers["Duly-Notification"] == "5f-1"
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Team"] == "ops"
    assert verified("s3cret", headers, body)
    assert not verified("another", headers, body)
    assert not verified("s3cret", headers, body + b" ")
    assert not verified("s3cret", headers, body, now=time.time() + 1000)
    assert json.loads(body) == {
        "id": "5f-1",
        "kind": "failure",
        "text": "report failed: ValueError: boom",
        "at": "2027-03-01T12:00:00Z",
        "job": "report",
        "count": 3,
        "run_id": "0" * 26,
        "error": "ValueError: boom",
    }


async def test_a_webhook_without_a_secret_is_not_signed(receiver):
    await Webhook(receiver.url).send(MESSAGE)
    assert "Duly-Signature" not in receiver.requests[0][1]


async def test_bodies_of_other_services(receiver):
    await Webhook(receiver.url, format="slack").send(MESSAGE)
    await Webhook(receiver.url, format=lambda message: {"summary": message.text, "n": message.count}).send(MESSAGE)
    assert receiver.messages() == [{"text": MESSAGE.text}, {"summary": MESSAGE.text, "n": 3}]


async def test_secrets_are_read_from_files_and_variables_for_each_message(receiver, tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("first\n")
    monkeypatch.setenv("HOOK_URL", receiver.url)
    hook = Webhook(url_env="HOOK_URL", secret_file=tmp_path / "secret")
    await hook.send(MESSAGE)
    (tmp_path / "secret").write_text("second\n")
    await hook.send(MESSAGE)
    assert [verified(secret, *receiver.requests[n][1:]) for n, secret in enumerate(["first", "second"])] == [True, True]
    (tmp_path / "secret").unlink()
    with pytest.raises(ConfigurationError, match=r"secret_file=.* cannot be read"):
        await hook.send(MESSAGE)
    monkeypatch.delenv("HOOK_URL")
    with pytest.raises(ConfigurationError, match="the variable HOOK_URL is not set"):
        await hook.send(MESSAGE)


async def test_redirects_are_not_followed(receiver):
    other = Receiver()
    receiver.status, receiver.headers = 302, {"Location": other.url}
    with pytest.raises(DeliveryRejected, match="redirects are not followed"):
        await Webhook(receiver.url).send(MESSAGE)
    assert other.requests == []
    other.close()


@pytest.mark.parametrize(("status", "error"), [(400, DeliveryRejected), (404, DeliveryRejected), (408, OSError)])
async def test_a_refusal_for_good_and_one_for_now(receiver, status, error):
    receiver.status = status
    with pytest.raises(error, match=rf"HTTP {status}: no\."):
        await Webhook(receiver.url).send(MESSAGE)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_server_that_is_busy_is_asked_again(receiver, status):
    receiver.status = status
    with pytest.raises(OSError, match=f"HTTP {status}"):
        await Webhook(receiver.url).send(MESSAGE)


async def test_a_receiver_that_does_not_answer_times_out(receiver):
    receiver.stall = 5
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await Webhook(receiver.url, timeout=0.2).send(MESSAGE)
    assert time.monotonic() - began < 4


async def test_a_receiver_that_sends_a_byte_now_and_then_is_cut_off():
    """Each byte comes within the timeout of the socket; the time for the whole message ends it, thread included."""
    ended = threading.Event()

    def drip(client):
        with suppress(OSError), client:
            client.recv(65536)
            while client.send(b"H"):
                time.sleep(0.02)
        ended.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: drip(server.accept()[0]), daemon=True).start()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await Webhook(f"http://127.0.0.1:{server.getsockname()[1]}/").send(MESSAGE)
        assert await asyncio.to_thread(ended.wait, 10)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/x",
        "gopher://example.org",
        "https://",
        "https://user:pass@example.org/",
        "http://example.org:99999/",
        "http://example.org/a b",
        "http://example.org/\r\nX: y",
        "javascript:alert(1)",
        "",
    ],
)
def test_addresses_that_are_refused(url):
    with pytest.raises(ConfigurationError, match="notify 'webhook': url"):
        Webhook(url)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "no spaces"}, "name='no spaces'"),
        ({"on": ["failures"]}, "on='failures': expected any of failure, recovery, missed, late, overdue"),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": 1000}, "timeout=1000"),
        ({"format": "xml"}, "format='xml'"),
        ({"headers": {"X": "a\nb"}}, "headers: 'X'"),
        ({"secret": ""}, "secret: expected"),
        ({"secret": "a", "secret_env": "B"}, "give one of secret, secret_file and secret_env"),
    ],
)
def test_options_that_are_refused(options, message):
    with pytest.raises(ConfigurationError) as caught:
        Webhook("https://example.org/hook", **options)
    assert message in str(caught.value)


def test_nothing_shows_a_secret():
    hook = Webhook("https://hooks.example.org/services/T0/B0/abcdef", secret="s3cret")
    mail = Mail("ops@example.org", sender="duly@example.org", server="smtps://duly@mail.example.org", password="pa55")
    config = SchedulerConfig(notify=(hook, mail))
    for text in (repr(hook), str(hook), repr(mail), str(mail), repr(config), repr(vars(hook)), repr(vars(mail))):
        assert not any(secret in text for secret in ("abcdef", "s3cret", "pa55")), text
    assert str(hook) == "https://hooks.example.org/…"


# --- mail


async def test_a_mail(mailbox):
    digest = Notification(
        "5f-2",
        NotificationKind.DIGEST,
        "2 jobs\nneed attention",
        MESSAGE.at,
        concerns=(Concern(NotificationKind.FAILURE, "a", 2, "E: x"),),
    )
    mail = Mail(["ops@example.org", "boss@example.org"], sender="duly@example.org", server=mailbox.url)
    await mail.send(MESSAGE)
    await mail.send(digest)
    first, second = (email.message_from_bytes(each.content, policy=policy.default) for each in mailbox.envelopes)
    assert mailbox.envelopes[0].rcpt_tos == ["ops@example.org", "boss@example.org"]
    assert mailbox.envelopes[0].mail_from == "duly@example.org"
    assert first["Subject"] == "[duly] report failed: ValueError: boom"
    assert first["Duly-Notification"] == "5f-1"
    assert first["Message-ID"] == "<5f-1.duly@example.org>"
    assert "run: " + "0" * 26 in first.get_content()
    assert second["Subject"] == "[duly] 2 jobs need attention"
    assert "failure: a, 2: E: x" in second.get_content()


async def test_a_subject_is_one_line_whatever_the_error_says(mailbox):
    hostile = "boom\r\nBcc: all@example.org\r\n\r\n<b>" + "x" * 5000
    mail = Mail("ops@example.org", sender="duly@example.org", server=mailbox.url)
    await mail.send(Notification("1", NotificationKind.FAILURE, hostile, MESSAGE.at, error=hostile))
    message = email.message_from_bytes(mailbox.envelopes[0].content, policy=policy.default)
    assert message["Bcc"] is None
    assert message["Subject"].startswith("[duly] boom Bcc: all@example.org <b>xxx")
    assert len(message["Subject"]) < 300


async def test_a_server_that_refuses_a_mail_is_asked_again(mailbox):
    mailbox.answer = "451 later"
    with pytest.raises(Exception, match="later"):
        await Mail("ops@example.org", sender="duly@example.org", server=mailbox.url).send(MESSAGE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": []}, "to is empty"),
        ({"to": "ops"}, "to='ops'"),
        ({"to": "ops@example.org\nBcc: x@y"}, "to="),
        ({"sender": "duly"}, "sender='duly'"),
        ({"server": "http://localhost"}, "server: expected smtp://host"),
        ({"server": "smtps://user:pw@host"}, "password_file or password_env"),
        ({"server": "smtp://user@host", "password": "x"}, "needs a user and encryption"),
        ({"server": 7}, "server: expected"),
    ],
)
def test_mail_options_that_are_refused(options, message):
    with pytest.raises(ConfigurationError) as caught:
        Mail(**{"to": "ops@example.org", "sender": "duly@example.org"} | options)
    assert message in str(caught.value)


# --- commands


async def test_a_command_gets_the_message(tmp_path):
    out = tmp_path / "out"
    script = f'cat > {out}; echo "$DULY_NOTIFICATION $DULY_KIND $DULY_JOB $DULY_TEXT" >> {out}'
    await NotifyCommand(["/bin/sh", "-c", script]).send(MESSAGE)
    body, words = out.read_text().rsplit("}", 1)
    assert json.loads(body + "}")["id"] == "5f-1"
    assert words.strip() == "5f-1 failure report report failed: ValueError: boom"


async def test_a_command_that_fails_or_hangs(tmp_path):
    with pytest.raises(OSError, match="exit code 3"):
        await NotifyCommand(["/bin/sh", "-c", "exit 3"]).send(MESSAGE)
    with pytest.raises(Exception, match="timed out"):
        await NotifyCommand(["/bin/sleep", "30"], timeout=0.2).send(MESSAGE)


def test_commands_must_be_allowed():
    command = NotifyCommand(["/bin/true"])
    with pytest.raises(ConfigurationError, match="needs SchedulerConfig\\(allow_commands=True\\)"):
        SchedulerConfig(notify=(command,))
    assert SchedulerConfig(notify=(command,), allow_commands=True).notify == (command,)
    with pytest.raises(ConfigurationError, match="expected a list of strings"):
        NotifyCommand("rm -rf /")


# --- configuration


def test_targets_have_different_names_and_the_right_members():
    with pytest.raises(ConfigurationError, match="two targets are named 'webhook'"):
        SchedulerConfig(notify=(Webhook("http://a/"), Webhook("http://b/")))
    for wrong in ("https://example.org", [object()], [Webhook]):
        with pytest.raises(ConfigurationError, match="notify"):
            SchedulerConfig(notify=wrong)


def test_tables(tmp_path):
    hook, mail, command = targets_of(
        {
            "ops": {"webhook": "https://example.org/x", "secret_file": "key", "on": ["failure"], "format": "slack"},
            "people": {"mail": "a@b.c", "sender": "d@e.f", "server": "smtps://u@h", "password_env": "PW"},
            "local": {"command": ["/bin/true"], "timeout": 3},
        },
        tmp_path,
    )
    assert (hook.name, hook.on, str(hook)) == ("ops", ("failure",), "https://example.org/…")
    assert str(mail) == "mail to a@b.c by smtps://h:465"
    assert str(command) == "command /bin/true"
    (tmp_path / "key").write_text("k")
    assert hook._secret.get() == "k"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "expected a table with one of webhook, mail and command"),
        ("https://example.org", "expected a table"),
        ({"webhook": "https://e.org", "mail": "a@b.c"}, "with one of webhook, mail and command"),
        ({"webhook": "https://e.org", "secret": "x"}, "unknown field `secret`"),
        ({"webhook": 7}, "Expected `str | null`, got `int`"),
        ({"mail": "a@b.c"}, "missing required field `sender`"),
        ({"command": "rm -rf /"}, "Expected `array`, got `str`"),
        ({"webhook": "https://e.org", "on": "failure"}, "Expected `array | null`"),
    ],
)
def test_tables_that_are_refused(table, message):
    with pytest.raises(ConfigurationError) as caught:
        target_of("ops", table)
    assert message in str(caught.value)
    assert str(caught.value).startswith("notify 'ops': ")
