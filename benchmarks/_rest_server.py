"""Serves an exported model with TensorFlow Serving's REST API; prints its address when it is ready.

python benchmarks/_rest_server.py EXPORT_DIR
"""

import http.server
import json
import sys
from typing import Any


def main() -> None:
    """Serves until it is killed."""
    import tensorflow as tf

    from t2t_ext.serving import export

    signatures = export.load(sys.argv[1]).signatures

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if body["signature_name"] in signatures:
                inputs = {name: tf.constant(values) for name, values in body["inputs"].items()}
                found = signatures[body["signature_name"]](**inputs)
                self._answer(200, {"outputs": {name: _plain(value) for name, value in found.items()}})
            else:
                self._answer(400, {"error": f'Serving signature name: "{body["signature_name"]}" not found'})

        def _answer(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        print(f"127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


def _plain(tensor: Any) -> list[Any]:
    return _decoded(tensor.numpy().tolist())


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


if __name__ == "__main__":
    main()
