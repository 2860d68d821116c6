"""Local servers that speak TF Serving's protocols over a SavedModel: PredictionService (gRPC) and the REST API."""

import contextlib
import http.server
import json
import threading
import time
from concurrent import futures

import grpc


class Servable:
    """A SavedModel under the name and the version with which a server offers it."""

    def __init__(self, directory, name="t2t_ext"):
        import tensorflow as tf

        self.name, self.version = name, int(directory.name)
        self._model = tf.saved_model.load(str(directory))
        self.requests = 0
        self.delay_secs = 0.0
        self.busy = 0  # number of requests to refuse before the next one is answered

    def predict(self, name, version, signature_name, inputs):
        """Returns the outputs of a signature by name.

        Raises:
          BlockingIOError: While requests are to be refused (``busy``).
          LookupError: The model or its version is unknown.
          ValueError: The signature is unknown.
        """
        self.requests += 1
        time.sleep(self.delay_secs)
        if self.busy:
            self.busy -= 1
            raise BlockingIOError("The batch scheduling queue to which this request was submitted is full")
        if name != self.name or version not in (None, self.version):
            raise LookupError(f"Servable not found for request: Specific({name}, {version})")
        if signature_name not in self._model.signatures:
            raise ValueError(f'Serving signature name: "{signature_name}" not found in signature def')
        return self._model.signatures[signature_name](**inputs)


@contextlib.contextmanager
def grpc_server(servable):
    """Runs a gRPC server of PredictionService and yields its address."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            spec = request.model_spec
            version = spec.version.value if spec.HasField("version") else None
            inputs = {name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()}
            try:
                found = servable.predict(spec.name, version, spec.signature_name, inputs)
            except LookupError as error:
                context.abort(grpc.StatusCode.NOT_FOUND, str(error))
            except ValueError as error:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            except BlockingIOError as error:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
            outputs = {name: tf.make_tensor_proto(value.numpy()) for name, value in found.items()}
            return predict_pb2.PredictResponse(model_spec=spec, outputs=outputs)

    server = grpc.server(futures.ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def rest_server(servable):
    """Runs a server of the REST API's predict method (column format) and yields its address."""
    import tensorflow as tf

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            path, _, method = self.path.partition(":")
            _, _, _, name, *version = path.split("/")
            assert method == "predict"
            inputs = {name: tf.constant(values) for name, values in body["inputs"].items()}
            try:
                found = servable.predict(name, int(version[1]) if version else None, body["signature_name"], inputs)
            except LookupError as error:
                self._answer(404, {"error": str(error)})
            except ValueError as error:
                self._answer(400, {"error": str(error)})
            except BlockingIOError as error:
                self._answer(503, {"error": str(error)})
            else:
                outputs = {name: self._plain(value) for name, value in found.items()}
                # Like TF Serving: a single output has no name.
                self._answer(200, {"outputs": outputs if len(outputs) > 1 else next(iter(outputs.values()))})

        def _plain(self, tensor):
            values = tensor.numpy().tolist()
            if tensor.dtype != tf.string:
                return values
            return [[v.decode() for v in row] if isinstance(row, list) else row.decode() for row in values]

        def _answer(self, status, body):
            data = json.dumps(body).encode()
            with contextlib.suppress(BrokenPipeError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
