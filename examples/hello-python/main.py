"""A plugin without an SDK: JSON-RPC 2.0, one object a line, on stdin and stdout. Prints of its own go to stderr."""
import hashlib, json, sys

manifest = json.load(open("plugin.json", encoding="utf-8"))  # a plugin starts in its bundle, /plugin
descriptors = json.dumps(manifest["commands"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
mine = {key: manifest[key] for key in ("protocol", "name", "version")}
mine["commands_digest"] = hashlib.sha256(descriptors.encode()).hexdigest()


def answer(request, **outcome):
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}), flush=True)


for line in sys.stdin.buffer:
    request = json.loads(line)
    method, params = request["method"], request.get("params", {})
    if "id" not in request:
        continue  # a notification, such as $/cancel: a greeting is too short to be taken back
    elif method == "initialize":
        if any(params.get(key) != value for key, value in mine.items()):
            answer(request, error={"code": -32001, "message": f"attestation failed: this program is {mine}"})
            sys.exit(1)
        answer(request, result=mine)
    elif method == "command/invoke" and params["command"] == "greet":
        answer(request, result={"greeting": f"Hello, {params['arguments']['name']}!"})
    elif method in ("ping", "shutdown"):
        answer(request, result={})
        if method == "shutdown":
            break
    else:
        answer(request, error={"code": -32601, "message": f"no such method or command: {method}"})
