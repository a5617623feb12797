"""The page in a browser, over a server of canned answers."""

from __future__ import annotations

from browser import Browser, needs_chromium
from fake_server import STEPS, Canned, fake_server, node, step, token
from using_the_page import complete, race

pytestmark = needs_chromium
TEXT = "The cat sat on it."


def test_an_answer_streams_in_the_colours_of_its_drafters(page: Browser, canned: Canned) -> None:
    page.type("#chat-prompt", "Hello\n")
    page.wait(lambda: page.text("#chat .foot"), "the end of the answer")
    classes = [(one.text, one.get_attribute("class")) for one in page.all("#chat .token")]
    assert classes[:5] == [
        ("The", "token own"),
        (" cat", "token d0"),
        (" sat", "token d1"),
        (" on", "token own"),
        (" it", "token d0"),
    ]
    shown = page.all("#chat .token")[1:3]
    assert len({one.value_of_css_property("background-color") for one in shown}) == 2
    assert len({one.value_of_css_property("border-bottom-style") for one in shown}) == 2  # not by colour alone
    assert page.text("#chat .tokens") == TEXT
    assert [dd.text for dd in page.all("#measured dd")][1:3] == ["75 %", "2.00"]
    assert [li.text.split("\n") for li in page.all("#measured .legend li")][:2] == [
        ["ngram", "2 of 2"],
        ["eagle", "1 of 2"],
    ]
    assert len(page.all("#measured .timeline g")) == len(STEPS)
    assert len(page.all("#measured .timeline .hollow")) == 1
    assert canned.bodies[0]["return_speculation"] is True


def test_the_conversation_goes_on_with_what_was_said(page: Browser, canned: Canned) -> None:
    for message in ("Hello", "More"):
        page.type("#chat-prompt", f"{message}\n")
        page.wait(lambda: page.text("#chat-form .primary") == "Send" and page.text("#chat .turn:last-child .foot"))
    assert canned.bodies[1]["messages"] == [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": TEXT},
        {"role": "user", "content": "More"},
    ]


def test_pointing_at_a_token_shows_what_was_drafted_and_rejected(page: Browser) -> None:
    complete(page)
    page.point_at(page.all("#completion .token")[2])
    card = page.one("#inspector").text
    assert "guessed by eagle" in card
    assert "step 2: 3 tokens in 2.5 ms; the next draft token was rejected" in card
    nodes = [li.text.split() for li in page.all("#inspector .draft li")]
    assert nodes == [["✓", "“", "cat”", "90", "%"], ["✓", "“", "sat”", "60", "%"], ["✗", "“", "ran”", "30", "%"]]
    page.point_at(page.all("#completion .token")[0])
    page.wait(lambda: "ngram found nothing to go on from" in page.text("#inspector"))
    page.point_at(page.one("h1"))
    page.wait(lambda: not page.all("#inspector")[0].is_displayed())


def test_a_race_with_equal_texts_says_so(page: Browser, canned: Canned) -> None:
    assert race(page).startswith("The same text: all 6 tokens are equal. With drafts it came ")
    drafted, plain = canned.bodies
    assert (drafted["speculation"], plain["speculation"]) == ({"enabled": True}, {"enabled": False})
    assert drafted["seed"] == plain["seed"]
    assert drafted["cache_salt"] != plain["cache_salt"]
    assert not page.all("#race .different")


def test_a_race_marks_the_first_difference(page: Browser, canned: Canned) -> None:
    canned.plain_steps = [step([token(1, "The")]), step([token(2, " cat")]), step([token(7, " ran")])]
    assert race(page) == "Different texts: 2 tokens are equal, the first difference is at token 3."
    assert [one.text for one in page.all("#race .different")] == [" sat", " ran"]


def test_a_race_at_once_sends_both_before_one_ends(page: Browser, canned: Canned) -> None:
    canned.pause = 0.5
    page.one("#tab-race").click()
    page.one("#race-at-once").click()
    page.one("#race-form .primary").click()
    page.wait(lambda: len(canned.bodies) == 2)
    assert not page.all("#race .foot:not(:empty)")
    canned.pause = 0.01
    page.wait(lambda: len(page.all("#race .foot:not(:empty)")) == 2)


def test_an_error_of_the_server_is_shown_in_its_words(page: Browser, canned: Canned) -> None:
    canned.error = (400, {"message": "temperature must be <b>at least</b> 0", "type": "bad", "param": "temperature"})
    page.type("#chat-prompt", "Hello\n")
    error = page.one("#chat .error").text
    assert "temperature must be <b>at least</b> 0" in error
    assert "HTTP 400 · bad · field temperature · request r-17" in error
    assert page.one("#chat-prompt").get_attribute("value") == "Hello"


def test_an_error_within_a_stream_keeps_what_came_before(page: Browser, canned: Canned) -> None:
    canned.last = {"error": {"message": "the device is gone", "type": "server_error"}}
    complete(page)
    assert page.text("#completion .tokens") == TEXT
    assert "the device is gone" in page.one("#completion .error").text


def test_a_setting_that_cannot_be_sent_is_pointed_at(page: Browser, canned: Canned) -> None:
    page.one("#tab-completion").click()
    page.script("document.querySelector('[name=more]').value = '{'")
    page.one("#completion-form .primary").click()
    assert "more is not JSON" in page.one("#completion .error").text
    assert page.script("return document.activeElement.name") == "more"
    assert canned.bodies == []


def test_stop_ends_the_request(page: Browser, canned: Canned) -> None:
    canned.steps, canned.pause = STEPS * 1000, 0.01
    page.one("#tab-completion").click()
    page.one("#completion-form .primary").click()
    page.wait(lambda: page.text("#completion .tokens"))
    page.one("#completion-form .primary").click()
    page.wait(lambda: "stopped" in page.text("#completion .foot"))
    assert page.text("#completion-form .primary") == "Complete"


def test_what_a_model_writes_is_text(page: Browser, canned: Canned) -> None:
    hostile = '<img src=x onerror="document.title=1"><script>document.title=2</script>\x1b[31m\x00\u202e&lt;'
    draft = [node(8, hostile, hostile, survival=0.5, accepted=False)]
    canned.steps = [step([token(1, hostile, hostile)], draft, reason=hostile)]
    complete(page, hostile)
    shown = hostile.replace("\x1b", "␛").replace("\x00", "␀").replace("\u202e", "⟨U+202E⟩")
    assert page.text("#completion .tokens") == shown
    page.point_at(page.all("#completion .token")[0])
    assert "onerror" in page.one("#inspector").text
    assert not page.all("main img, #inspector img, main script, .columns script")
    assert page.driver.title == "specserve playground"
    assert (
        page.script("try { document.body.innerHTML = '<b>x</b>' } catch (error) { return error.name }") == "TypeError"
    )
    assert ["TrustedHTML" in line for line in page.console()] == [True]  # the browser reads no text as HTML here


def test_a_server_with_a_key_is_asked_with_it_and_a_wrong_one_is_told(chromium: Browser, canned: Canned) -> None:
    canned.key = "right"
    with fake_server(canned) as url:
        chromium.open(url)
        chromium.type("#key", "wrong\n")
        chromium.wait(lambda: "refused: the API key is wrong" in chromium.text("#notice"))
        chromium.type("#key", "right\n")
        chromium.wait(lambda: "toy" in chromium.text("#served"))
        assert not chromium.all("#notice")[0].is_displayed()
        complete(chromium)
        assert chromium.text("#completion .tokens") == TEXT
        kept = "return JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
        assert "right" not in chromium.script(kept)
        chromium.all("#completion .foot button")[1].click()
        assert "SPECSERVE_API_KEY" in chromium.one("#snippet-text").get_attribute("value")
        assert "right" not in chromium.one("#snippet-text").get_attribute("value")


def test_while_the_model_loads_the_page_says_how_far_it_is_and_then_begins(chromium: Browser, canned: Canned) -> None:
    canned.loading = {"stage": "reading weights", "done": 1, "total": 4}
    with fake_server(canned) as url:
        chromium.open(url)
        chromium.wait(lambda: chromium.text("#notice") == "The model is loading: reading weights, 25 % …")
        canned.loading = None
        chromium.wait(lambda: "toy" in chromium.text("#served"))
        assert not chromium.all("#notice")[0].is_displayed()


def test_a_request_is_shown_as_curl(page: Browser) -> None:
    complete(page, "it's $HOME")
    next(one for one in page.all("#completion .foot button") if one.text == "curl").click()
    assert "'\\''s $HOME" in page.one("#snippet-text").get_attribute("value")


def test_any_two_plugins_say_why_they_work_together(page: Browser) -> None:
    page.one("#tab-plugins").click()
    page.one(".cell.conflict").click()
    assert page.text(".matrix .reason") == "ngram cannot run with lora: <b>for a test</b>."
    rows = [tr.text for tr in page.all("#plugins-content section:first-child tbody tr")]
    assert rows[0].startswith("ngram runs draft.tree")


def test_calls_of_tools_are_shown_and_the_text_is_what_clients_get(page: Browser, canned: Canned) -> None:
    call = {"index": 0, "function": {"name": "count", "arguments": '{"to": 3}'}}
    canned.last = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    page.script("document.querySelector('[name=tools]').value = arguments[0]", '[{"type": "function"}]')
    page.type("#chat-prompt", "Hello\n")
    page.wait(lambda: "calls tools" in page.text("#chat .foot"))
    assert page.text("#chat .calls code") == 'count({"to": 3})'
    assert canned.bodies[0]["tools"] == [{"type": "function"}]
    next(one for one in page.all("#chat .foot button") if one.text == "As text").click()
    assert page.one("#chat .text").text == TEXT
    assert not page.all("#chat .tokens")[0].is_displayed()
