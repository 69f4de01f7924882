"""A model "qwick" for simonw/llm: the answers of a running `qwick serve`.

    qwick serve &
    llm install -e /usr/share/doc/qwick/contrib/llm
    llm -m qwick "list files"

QWICK_URL is the server's address (default http://127.0.0.1:8080), or unix:PATH.
QWICK_KEY is a line of its --api-key-file, if it has one.
"""
import http.client
import json
import os
import socket
from typing import Optional
from urllib.parse import urlsplit

import llm


def connect():
    url = os.environ.get("QWICK_URL", "http://127.0.0.1:8080")
    if url.startswith("unix:"):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(url[len("unix:"):])
        return connection
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise llm.ModelError(f"QWICK_URL: {url}: is neither http://HOST:PORT nor unix:PATH")
    return http.client.HTTPConnection(parts.hostname, parts.port or 80)


def events(answer):
    """The objects of a stream, which ends with [DONE] or it is cut."""
    for line in answer:
        data = line.decode().partition("data: ")[2].strip()
        if data == "[DONE]":
            return
        if data:
            yield json.loads(data)
    raise llm.ModelError("qwick: the answer was cut")


class Qwick(llm.Model):
    model_id = "qwick"
    can_stream = True
    supports_schema = True

    class Options(llm.Options):
        temperature: Optional[float] = None
        top_p: Optional[float] = None
        max_tokens: Optional[int] = None
        seed: Optional[int] = None

    def messages(self, prompt, conversation):
        system, turns = prompt.system, []
        for earlier in conversation.responses if conversation else []:
            system = system or earlier.prompt.system
            turns += [{"role": "user", "content": earlier.prompt.prompt},
                      {"role": "assistant", "content": earlier.text()}]
        turns.append({"role": "user", "content": prompt.prompt})
        return [{"role": "system", "content": system}] * bool(system) + turns

    def execute(self, prompt, stream, response, conversation):
        body = {"messages": self.messages(prompt, conversation), "stream": True,
                "stream_options": {"include_usage": True}}
        body.update((k, v) for k, v in prompt.options if v is not None)
        if getattr(prompt, "schema", None):
            body["response_format"] = {"type": "json_schema", "json_schema": {
                "name": "answer", "strict": True, "schema": prompt.schema}}
        headers = {"Content-Type": "application/json"}
        if os.environ.get("QWICK_KEY"):
            headers["Authorization"] = "Bearer " + os.environ["QWICK_KEY"]
        try:
            connection = connect()
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as why:
            raise llm.ModelError(f"qwick serve does not answer: {why}") from why
        if answer.status != 200:
            raise llm.ModelError(f"qwick: {answer.status}: {answer.read().decode()}")
        for event in events(answer):
            if "error" in event:
                raise llm.ModelError("qwick: " + event["error"]["message"])
            for choice in event["choices"]:
                yield choice["delta"].get("content") or ""
            if event.get("usage"):
                response.set_usage(input=event["usage"]["prompt_tokens"],
                                   output=event["usage"]["completion_tokens"])
        connection.close()


@llm.hookimpl
def register_models(register):
    register(Qwick())
