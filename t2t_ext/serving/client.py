"""A client for an exported model behind TensorFlow Serving, over gRPC or REST; imports no TensorFlow.

Texts are raw text, as people write it. The client does the preparation that an exported graph cannot do (Moses'
tokenizer, subword-nmt), with the text encoders that the model itself provides.

client = make_client("localhost:8500", "t2t_ext")
client.translate(["ein Haus"])      # [[Translation(text="a house", score=-0.3)]]

If the model reads feature vectors, the sources are float arrays [regions, F].
"""

import abc
import contextlib
import dataclasses
import http.client
import itertools
import json
import queue
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, TypedDict

import numpy as np

from t2t_ext.data.features.float_files import padded
from t2t_ext.errors import UserError, require_package
from t2t_ext.io import files, stored
from t2t_ext.io.outputs import visible
from t2t_ext.io.stored import Real
from t2t_ext.serving import served_text
from t2t_ext.serving.protocol import Values
from t2t_ext.serving.served_text import ServedText
from t2t_ext.translation.hypothesis import exists

DEFAULT_TIMEOUT_SECS = 10.0
MOST_REQUEST_BYTES = 256 << 20
MOST_ANSWER_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 16
Sources = Sequence[str] | Sequence[np.ndarray]


@dataclasses.dataclass(frozen=True)
class Translation:
    """One translation of a sentence.

    Attributes:
      text: The translation.
      score: Its log-probability (natural logarithm) after the length penalty.
      log_prob: Its raw log-probability; None if only the best translation was requested.
      length: Its number of tokens; None if only the best translation was requested.
    """

    text: str
    score: float
    log_prob: float | None = None
    length: int | None = None


_ONLY_OUTPUTS = {"align": "alignments", served_text.SIGNATURE: "files"}  # signatures with a single output


class Refused(UserError):
    """Raised if the server understood a request but refused it."""


class Client(abc.ABC):
    """Translates through a server; subclasses implement the transport of requests."""

    _text: ServedText | None = None
    _asked_for_text = False

    def __init__(
        self, server: str, servable_name: str, *, timeout_secs: float = DEFAULT_TIMEOUT_SECS, version: int | None = None
    ) -> None:
        """Prepares a connection without sending anything; for the arguments see ``make_client``."""
        self.server = server
        self.servable_name = servable_name
        self.timeout_secs = timeout_secs
        self.version = version

    @abc.abstractmethod
    def predict(self, signature_name: str, inputs: Mapping[str, Values]) -> dict[str, list]:
        """Sends one request.

        Args:
          signature_name: One of the model's signatures.
          inputs: Name -> strings [N], or a float32 array.

        Returns:
          Name -> list of N strings or numbers, or of N lists of them.

        Raises:
          UserError: The server cannot be reached, does not know the model, takes too long or refuses the request.
        """

    def close(self) -> None:  # noqa: B027 - not every kind of connection stays open
        """Closes the connection."""

    def translate(self, lines: Sources) -> list[list[Translation]]:
        """Returns the best translation of each line, or of each array of feature vectors, as a one-element list."""
        if not lines:
            return []
        inputs = {"inputs": self._sources_to_graph(lines)}
        texts, scores = self._outputs("serving_default", inputs, {"outputs": str, "scores": Real}, len(lines))
        return [[Translation(text, score)] for text, score in zip(self._from_graph(texts), scores, strict=True)]

    def nbest(self, lines: Sources) -> list[list[Translation]]:
        """Returns the translations of each line that the search kept, best first: at most K, at least one."""
        if not lines:
            return []
        inputs = {"inputs": self._sources_to_graph(lines)}
        schemas = {"outputs": list[str], "scores": list[Real], "log_probs": list[Real], "lengths": list[int]}
        texts, *numbers = self._outputs("nbest", inputs, schemas, len(lines))
        found = []
        for row, scores, log_probs, lengths in zip(texts, *numbers, strict=True):
            there = [exists(log_prob) for log_prob in log_probs]
            places = zip(self._from_graph(row), scores, log_probs, lengths, strict=True)
            translations = [Translation(*place) for place in places]
            found.append(list(itertools.compress(translations, there)) or translations[:1])
        return found

    def score(self, pairs: Sequence[tuple[str, str]], partners: Sequence[str] | None = None) -> list[Translation]:
        """Returns the scores of (source, translation) pairs.

        ``partners`` are only for a model of two directions, which needs them: what the right-to-left direction
        generates alongside each translation, in text order.
        """
        if not pairs:
            return []
        inputs = self._pairs_to_graph(pairs)
        if partners is not None:
            inputs["partners"] = self._to_graph("target", partners)
        schemas = {"scores": Real, "log_probs": Real, "lengths": int}
        outputs = self._outputs("score", inputs, schemas, len(pairs))
        return [Translation(*row) for row in zip([target for _, target in pairs], *outputs, strict=True)]

    def align(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Returns the word alignments of (source, translation) pairs, such as ``0-0 2-1 1-2``.

        The words are those of the prepared texts, which ``prepare`` returns.
        """
        if not pairs:
            return []
        return self._outputs("align", self._pairs_to_graph(pairs), {"alignments": str}, len(pairs))[0]

    def prepare(self, side: str, texts: Sequence[str]) -> list[str]:
        """Returns ``source`` or ``target`` texts as the model's steps prepare them; without steps, unchanged."""
        text = self.text()
        return list(texts) if text is None else text.to_prepared(side, texts)

    def text(self) -> ServedText | None:
        """Returns the model's text encoders, requested only once; None if its graph takes raw text."""
        if not self._asked_for_text:
            try:
                (found,) = self._outputs(served_text.SIGNATURE, {"sides": served_text.SIDES}, {"files": str}, 2)
                self._text = ServedText.from_wire(found, f"the model {self.servable_name!r} on {self.server}")
            except Refused as error:
                # A model without this signature takes raw text. Other refusals, as of a busy server, say nothing of it.
                if "signature" not in str(error).lower():
                    raise
            self._asked_for_text = True
        return self._text

    def _to_graph(self, side: str, texts: Sequence[str]) -> list[str]:
        text = self.text()
        return list(texts) if text is None else text.to_graph(side, texts)

    def _sources_to_graph(self, sources: Sources) -> Values:
        if isinstance(sources, str):
            raise UserError("A list of lines is needed, got one string; write [text] instead of text.")
        texts = [source for source in sources if isinstance(source, str)]
        if texts:
            return self._to_graph("source", texts)
        arrays = [np.asarray(source, np.float32) for source in sources]
        shapes = {array.shape[1:] for array in arrays}
        if len(shapes) > 1 or any(array.ndim != 2 for array in arrays):
            shown = ", ".join(str(list(array.shape)) for array in arrays[:5])
            raise UserError(f"Feature vectors are [regions, F] with one F for all sources, not {shown}.")
        return padded(arrays, max(1, *map(len, arrays)), arrays[0].shape[1], np.float32)

    def _pairs_to_graph(self, pairs: Sequence[tuple[str, str]]) -> dict[str, Values]:
        sources, targets = zip(*pairs, strict=True)
        return {"inputs": self._sources_to_graph(sources), "targets": self._to_graph("target", targets)}

    def _from_graph(self, texts: Sequence[str]) -> list[str]:
        text = self.text()
        return list(texts) if text is None else text.from_graph(texts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _outputs(
        self, signature_name: str, inputs: Mapping[str, Values], schemas: Mapping[str, Any], rows: int
    ) -> list[list]:
        """Returns the outputs named in ``schemas``, each a list of ``rows`` values that match its schema.

        Raises:
          UserError: ``predict`` fails, or the answer does not have these outputs.
        """
        found = self.predict(signature_name, inputs)
        model = f"The model {self.servable_name!r} on {self.server}"
        missing = [name for name in schemas if name not in found]
        if missing:
            raise UserError(
                f"{model} answers {visible(', '.join(sorted(found)))[:200] or 'nothing'}, not {', '.join(missing)}: it "
                "was not exported by t2t_ext-exporter."
            )
        try:
            for name, schema in schemas.items():
                stored.check(found[name], list[schema], name)  # type: ignore[valid-type]
        except stored.Damaged as error:
            raise UserError(
                f"{model} gives no answer of t2t_ext-exporter's models: {_one_line(str(error))}."
            ) from error
        outputs = [found[name] for name in schemas]
        sizes = {tuple(len(row) if isinstance(row, list) else 1 for row in output) for output in outputs}
        if len(sizes) > 1 or any(len(output) != rows for output in outputs):
            counts = ", ".join(f"{len(found[name]):,} {name}" for name in schemas)
            raise UserError(f"{model} answers {rows:,} lines with {counts}, or not as many of each for every line.")
        return outputs

    def _unreachable(self, reason: str) -> UserError:
        return UserError(
            f"No answer from a server at {self.server} ({reason}). Check --server=host:port and that TF Serving "
            f"is running; {self._port_hint}."
        )

    def _timeout(self) -> UserError:
        return UserError(
            f"{self.server} did not answer within {self.timeout_secs:g} s. Give it longer with --timeout_secs, or send "
            "fewer or shorter lines at once."
        )

    def _unknown_model(self, reason: str) -> UserError:
        version, versions = "", ""
        if self.version is not None:
            version = f" in version {self.version}"
            versions = ", and one of its versions, or none for the newest, as --servable_version"
        return UserError(
            f"The server at {self.server} has no model {self.servable_name!r}{version} ({reason}). "
            f"Give the name that it was started with (--model_name of TF Serving) as --servable_name{versions}."
        )

    def _check_size(self, size: int) -> None:
        if size > MOST_REQUEST_BYTES:
            raise self._too_large("request", MOST_REQUEST_BYTES)

    def _too_large(self, what: str, most: int) -> UserError:
        return UserError(
            f"The {what} has more than {files.format_bytes(most)} ({self.server}). Send fewer or shorter lines at once."
        )

    def _refused(self, reason: str) -> Refused:
        return Refused(f"The server at {self.server} refused the request: {reason}")

    _port_hint = ""


class GrpcClient(Client):
    """A client that speaks PredictionService over gRPC (TF Serving's ``--port``, usually 8500)."""

    _port_hint = "gRPC listens on port 8500 by default, REST (--rest) on 8501"

    def __init__(self, server: str, servable_name: str, **options: Any) -> None:
        require_package("grpc", "serving-client", "The gRPC client", "Or speak REST: --rest.")
        import grpc

        super().__init__(server, servable_name, **options)
        limits = {"receive": MOST_ANSWER_BYTES, "send": MOST_REQUEST_BYTES}
        settings = [(f"grpc.max_{name}_message_length", value) for name, value in limits.items()]
        self._channel = grpc.insecure_channel(server, options=settings)

    def predict(self, signature_name: str, inputs: Mapping[str, Values]) -> dict[str, list]:
        """See ``Client.predict``."""
        import grpc

        from t2t_ext.serving import protocol

        request = protocol.predict_request(self.servable_name, signature_name, inputs, self.version)
        self._check_size(len(request))
        call = self._channel.unary_unary(protocol.PREDICT_METHOD, request_serializer=bytes)
        try:
            answer = call(request, timeout=self.timeout_secs)
        except grpc.RpcError as error:
            raise self._explain(error.code(), _one_line(error.details() or error.code().name)) from error
        try:
            return protocol.parse_predict_response(answer)
        except protocol.BAD_RESPONSE as error:
            raise self._refused("the answer is none of TF Serving's; is this its gRPC port?") from error

    def close(self) -> None:
        """Closes the channel."""
        self._channel.close()

    def _explain(self, code: Any, details: str) -> UserError:
        match code.name:
            case "DEADLINE_EXCEEDED":
                return self._timeout()
            case "UNAVAILABLE" | "UNIMPLEMENTED":
                return self._unreachable(details)
            case "NOT_FOUND":
                return self._unknown_model(details)
            case "RESOURCE_EXHAUSTED" if "larger than max" in details:
                return self._too_large("answer", MOST_ANSWER_BYTES)
        return self._refused(f"{details} ({code.name})")


class RestClient(Client):
    """A client that speaks TF Serving's REST API (``--rest_api_port``, usually 8501)."""

    _port_hint = "REST listens on port 8501 by default, gRPC (without --rest) on 8500"

    def predict(self, signature_name: str, inputs: Mapping[str, Values]) -> dict[str, list]:
        """See ``Client.predict``."""
        columns = {name: v.tolist() if isinstance(v, np.ndarray) else list(v) for name, v in inputs.items()}
        body = {"signature_name": signature_name, "inputs": columns}
        headers = {"Content-Type": "application/json"}
        data = json.dumps(body).encode()
        self._check_size(len(data))
        request = urllib.request.Request(self._url(), data=data, headers=headers)
        with self._explained():
            answer = stored.parse(self._within_time(request), dict[str, Any])
        outputs = answer.get("outputs")
        if isinstance(outputs, list):  # TF Serving leaves out the name of a signature's only output
            outputs = {_ONLY_OUTPUTS.get(signature_name, "outputs"): outputs}
        if not isinstance(outputs, dict):
            raise self._refused("the answer holds no outputs; this is no model of t2t_ext-exporter.")
        return outputs

    def _within_time(self, request: urllib.request.Request) -> bytes:
        """Returns the complete answer to a request, which must arrive within ``timeout_secs``.

        The timeout of a socket limits only each single read, so a server that sends a byte now and then would keep the
        client waiting forever. Therefore a thread reads the answer; it is abandoned when the time is over.
        """
        results: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()
        end = time.monotonic() + self.timeout_secs

        def ask() -> None:
            try:
                with urllib.request.urlopen(request, timeout=self.timeout_secs) as response:
                    blocks, size = [], 0
                    while block := response.read1(_BLOCK_BYTES):
                        blocks.append(block)
                        size += len(block)
                        if time.monotonic() > end:
                            raise TimeoutError
                        if size > MOST_ANSWER_BYTES:
                            raise self._too_large("answer", MOST_ANSWER_BYTES)
                results.put(b"".join(blocks))
            except urllib.error.HTTPError as error:
                error.msg = _rest_error(error)  # read in this thread, where time is limited
                results.put(error)
            except Exception as error:
                results.put(error)

        threading.Thread(target=ask, name="t2t_ext-client", daemon=True).start()
        try:
            found = results.get(timeout=self.timeout_secs)
        except queue.Empty:
            raise TimeoutError from None
        if isinstance(found, Exception):
            raise found
        return found

    def _url(self) -> str:
        base = self.server if "://" in self.server else f"http://{self.server}"
        version = "" if self.version is None else f"/versions/{self.version}"
        return f"{base.rstrip('/')}/v1/models/{urllib.parse.quote(self.servable_name, safe='')}{version}:predict"

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except urllib.error.HTTPError as error:
            reason = error.msg
            raise (self._unknown_model(reason) if error.code == 404 else self._refused(reason)) from error
        except TimeoutError as error:
            raise self._timeout() from error
        except urllib.error.URLError as error:
            timed_out = isinstance(error.reason, TimeoutError)
            raise (self._timeout() if timed_out else self._unreachable(_one_line(str(error.reason)))) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(_one_line(f"{type(error).__name__}: {error}")) from error
        except stored.Damaged as error:
            raise self._refused(f"{error}; is this TF Serving's REST port?") from error


def make_client(
    server: str,
    servable_name: str,
    *,
    rest: bool = False,
    timeout_secs: float = DEFAULT_TIMEOUT_SECS,
    version: int | None = None,
) -> Client:
    """Returns a client for a server.

    Args:
      server: ``host:port``; a leading ``http://`` or ``https://`` selects REST.
      servable_name: The model's name on the server (TF Serving's ``--model_name``).
      rest: Whether to use the REST API instead of gRPC.
      timeout_secs: Longest time that a request may take, in seconds.
      version: The model's version; None for the newest.

    Raises:
      UserError: ``server`` is not an address, or the timeout is not positive.
    """
    rest = rest or server.startswith(("http://", "https://"))
    with contextlib.suppress(ValueError):  # raised for a port that is not a number, or for "[::1"
        parsed = urllib.parse.urlsplit(server if "://" in server else f"//{server}")
        if parsed.hostname and (parsed.port or rest) and timeout_secs > 0:
            kind = RestClient if rest else GrpcClient
            return kind(server, servable_name, timeout_secs=timeout_secs, version=version)
    if timeout_secs <= 0:
        raise UserError(f"--timeout_secs={timeout_secs:g} must be positive.")
    raise UserError(f"--server={server!r} is no address. Give host:port, such as localhost:8500.")


class _RestError(TypedDict):
    error: str


def _rest_error(error: urllib.error.HTTPError) -> str:
    try:
        return _one_line(stored.parse(error.read(_BLOCK_BYTES), _RestError)["error"])
    except (stored.Damaged, OSError, http.client.HTTPException):
        return _one_line(f"HTTP status {error.code} {error.reason}")


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))
