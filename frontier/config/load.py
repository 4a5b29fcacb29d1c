"""YAML text to a `Config`, or every complaint about it at once, each with its line and the way out."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from frontier.config.advice import advice
from frontier.config.deployment import (
    DeploymentConfig,
    ReadyConfig,
    StopConfig,
    TimeoutsConfig,
    TlsConfig,
)
from frontier.config.faults import Fault, Faults, nearest, shown
from frontier.config.hardware import HardwareConfig
from frontier.config.models import BudgetConfig, Config, FinishConfig
from frontier.config.override import Setting, rendered, settled, told
from frontier.config.yamltext import Document, Path, read_yaml
from frontier.errors import Complaint, ConfigError
from frontier.text import looks_like_a_key, masked_line, redact

_SWEEP_KEYS = tuple(field.alias or name for name, field in Config.model_fields.items())
_DEPLOYMENT_KEYS = tuple(key for key in DeploymentConfig.model_fields if key != "name")
_TOP_KEYS = tuple(dict.fromkeys((*_SWEEP_KEYS, *_DEPLOYMENT_KEYS)))
_INNER_KEYS = {
    "budget": tuple(BudgetConfig.model_fields),
    "hardware": tuple(HardwareConfig.model_fields),
    "timeouts": tuple(TimeoutsConfig.model_fields),
    "tls": tuple(TlsConfig.model_fields),
    "on_finish": tuple(FinishConfig.model_fields),
    "ready": tuple(ReadyConfig.model_fields),
    "stop": tuple(StopConfig.model_fields),
}
_MERGED = ("simulator", "timeouts", "headers", "extra_body")
"""Mappings a deployment adds to, key by key; of all others its own replaces the top level's."""

_OPEN_LOOP = (
    "a sweep is a closed loop, its load the requests in flight",
    "write concurrency: [1, 2, 4, 8]; then  frontier verify  sends the rate that was found as Poisson arrivals",
)
_SYNONYMS = {
    "api_key": ("keys are not written into a config", "name its variable: api_key_env: OPENAI_API_KEY"),
    "base_url": (None, "write endpoint"), "url": (None, "write endpoint"), "server": (None, "write endpoint"),
    "host": (None, "write endpoint"), "backend": (None, "write endpoint: simulator, or dialect: vllm"),
    "isl": (None, "write shapes: [1024/256]"), "osl": (None, "write shapes: [1024/256]"),
    "workloads": (None, "write shapes"), "slo": (None, "write sla"), "num_requests": (None, "write requests"),
    "num_prompts": (None, "write requests"), "max_requests": (None, "write requests"),
    "duration": (None, "write max_time"), "timeout": (None, "write timeouts: {total: 30min}"),
    "temperature": (None, "write extra_body: {temperature: 0}"), "variants": (None, "write deployments"),
    "runs": (None, "write repeats"), "tiers": (None, "write sla: {gold: {p99_ttft: 200ms}}"),
    "percentiles": (None, "write them into the limits: sla: {p99_ttft: 500ms}"), "goodput": (None, "write sla"),
    "max_tokens": (None, "write shapes: [1024/256], input/output tokens"), "warmups": (None, "write warmup: 20s"),
    "max_seconds": (None, "write max_time"), "dataset": (None, "write prompts: path.jsonl, or prompts: random"),
    "tokenizer": ("prompts are fitted to the server's own token count", "remove it"),
    **dict.fromkeys(("request_rate", "rate", "rates", "qps", "rps", "arrival_rate", "burstiness"), _OPEN_LOOP),
    **dict.fromkeys(("users", "max_concurrency", "concurrencies", "num_users", "streams", "batch_size", "clients"),
                    (None, "write concurrency: [1, 2, 4, 8], the requests in flight")),
    **dict.fromkeys(("input_len", "output_len", "input_tokens", "output_tokens", "random_input_len",
                     "random_output_len", "prompt_tokens"), (None, "write shapes: [1024/256], input/output tokens")),
}  # fmt: skip


def load_config(text: str, file: str, settings: Sequence[Setting] = ()) -> Config:
    """The config in `text`; `file` is what messages call it. ConfigError with every complaint otherwise.

    `settings` replace or add single values. Nothing is read beside `text`: no file, no environment.
    """
    try:
        plain = read_yaml(text, file)
    except ConfigError as error:
        raise ConfigError(file, _redacted(error.complaints, ())) from None
    try:
        return _loaded(settled(plain, settings))
    except ConfigError as error:
        raise ConfigError(file, tuple(told(c, len(plain.lines)) for c in error.complaints)) from None


def config_text(text: str, file: str, settings: Sequence[Setting] = ()) -> str:
    """The text of the config with the settings in it; as the user wrote it when there are none. It must load."""
    if not settings:
        return text
    head = "".join(f"# {file} with  {setting.said}\n" for setting in settings)
    return head + rendered(settled(read_yaml(text, file), settings))


def _loaded(doc: Document) -> Config:
    leaks, secrets = _leaked(doc)
    complaints = [*doc.complaints, *_unset(doc), *_nameless(doc)]
    merged = _merged(doc.tree)
    config: Config | None = None
    ends = {path[-1:] for path in doc.unread}
    try:
        config = Config.model_validate(merged)
    except ValidationError as error:
        for wrong in error.errors(include_url=False):
            if wrong["type"] == "missing" and wrong["loc"][-1:] in ends:
                continue  # it is there, and the complaint about it is another
            complaints += _joined(doc, wrong["type"], tuple(wrong["loc"]), wrong.get("ctx", {}))
    except UnicodeEncodeError:
        what = "a text holds half a character, as the escape \\ud83d is"
        raise ConfigError(doc.file, (Complaint(what, "write the character itself"),)) from None
    unread = {(place.line, place.column) for path in doc.unread if (place := doc.values.get(path))}
    of_the_text = set(doc.complaints)
    complaints = [c for c in complaints if c in of_the_text or (c.line, c.column) not in unread]
    elsewhere = {(c.line, c.column) for c in complaints}
    complaints += [c for c in leaks if (c.line, c.column) not in elsewhere]
    if complaints or config is None:
        raise ConfigError(doc.file, _redacted(_sorted(complaints), secrets))
    config._warnings = tuple(doc.complaint(_place(doc, f.path), f.what, f.hint) for f in advice(config))
    return config


# ---- before validation ----------------------------------------------------------------------------------------------


def _leaked(doc: Document) -> tuple[list[Complaint], tuple[str, ...]]:
    """Values anywhere that are keys by their form."""
    found, secrets = [], []
    for path, text in doc.texts.items():
        if looks_like_a_key(text) and path[-1:] != ("api_key_env",):
            key = next((part for part in reversed(path) if isinstance(part, str)), "the config")
            what = f"{shown(key)[1:-1]} holds what looks like a key; keys come from the environment"
            found.append(doc.complaint(path, what, "put it into a variable and name that: api_key_env: OPENAI_API_KEY"))
            secrets.append(text)
        elif path and path[-1] in ("api_key_env", "api_key"):
            secrets.append(text)
    return found, tuple(s for s in secrets if len(s) >= 6)


def _unset(doc: Document) -> list[Complaint]:
    """Keys with nothing behind them: 'not given' would be a guess."""
    return [
        doc.complaint(path, f"{path[-1]} has no value", "write one, or remove the line", at_key=True)
        for path in doc.keys
        if "extra_body" not in path and _at(doc.tree, path) is None and path in doc.values and path not in doc.unread
    ]


def _nameless(doc: Document) -> list[Complaint]:
    """Deployments that are compared need names to be told apart."""
    listed = doc.tree.get("deployments")
    return [
        doc.complaint(("deployments", i), "the deployment has no name", "add  name: fp8")
        for i, item in enumerate(listed if isinstance(listed, list) else [])
        if isinstance(item, dict) and "name" not in item
    ]


def _at(tree: Any, path: Path) -> Any:
    """The value at a path; "" when the path leads nowhere (a duplicate, an alias)."""
    for part in path:
        try:
            tree = tree[part]
        except (KeyError, IndexError, TypeError):
            return ""
    return tree


def _merged(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The sweep's keys as they are, and every deployment with what it inherits from the top level."""
    given = {key: item for key, item in tree.items() if item is not None}
    shared = {key: given.pop(key) for key in _DEPLOYMENT_KEYS if key in given}
    listed = given.get("deployments")
    if listed is None:
        given["deployments"] = [shared]
    elif isinstance(listed, list):
        given["deployments"] = [_inherit(shared, item) if isinstance(item, dict) else item for item in listed]
    return given


def _inherit(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: item for key, item in own.items() if item is not None}
    both = {**shared, **own}
    for key in _MERGED:
        if isinstance(shared.get(key), dict) and isinstance(own.get(key), dict):
            both[key] = {**shared[key], **own[key]}
    return both


# ---- after validation -----------------------------------------------------------------------------------------------


def _joined(doc: Document, kind: str, loc: Path, context: Mapping[str, Any]) -> list[Complaint]:
    """One of pydantic's errors as complaints of ours, where they belong in the text."""
    error = context.get("error")
    faults = error.faults if isinstance(error, Faults) else (_plain(kind, loc),)
    found = []
    for f in faults:
        path = _place(doc, (*loc, *f.path))
        key = next((part for part in reversed(path) if isinstance(part, str)), "the config")
        written = doc.texts.get(path, "")
        hint = f.hint and f.hint.replace("{key}", key).replace("{text}", written[:60])
        found.append(doc.complaint(path, f.what.replace("{key}", key), hint, at_key=f.at_key))
    return found


def _plain(kind: str, loc: Path) -> Fault:
    """The few errors that are pydantic's own, in our words."""
    key = loc[-1] if loc and isinstance(loc[-1], str) else None
    if kind == "extra_forbidden" and key is not None:
        return _unknown_key(key, loc)
    if kind == "missing":
        examples = {"endpoint": "endpoint: http://localhost:8000/v1", "shapes": "shapes: [1024/256]"}
        return Fault(f"the key {key} is missing", f"add  {examples.get(str(key), f'{key}: ...')}", ("..",))
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        what = "a deployment is a mapping" if key is None else "{key} is a mapping"
        keys = _INNER_KEYS.get(str(key), ("name", "endpoint"))
        return Fault(what, f"write {{{keys[0]}: ...}}; known: " + ", ".join(keys))
    if kind == "tuple_type":
        return Fault("{key} is a list", "write [..., ...]")
    return Fault("{key} cannot be used as it is", "frontier init URL  shows what can be written")


def _unknown_key(key: str, loc: Path) -> Fault:
    inner = next((part for part in reversed(loc[:-1]) if isinstance(part, str)), None)
    what = f"unknown key {shown(key)}"
    in_deployment = inner == "deployments"
    if in_deployment and key in _SWEEP_KEYS:
        return Fault(f"{key} holds for the whole sweep, not for one deployment", "move it to the top", at_key=True)
    known = ("name", *_DEPLOYMENT_KEYS) if in_deployment else _INNER_KEYS.get(inner or "", _TOP_KEYS)
    if key in _SYNONYMS and (inner is None or in_deployment):
        why, hint = _SYNONYMS[key]
        return Fault(f"{what}; {why}" if why else what, hint, at_key=True)
    if inner == "hardware" and key == "flops":
        return Fault(what, "write tflops: 989  (dense, of one GPU)", at_key=True)
    hint = nearest(key, known)
    if known is _TOP_KEYS and not hint.startswith("did"):
        hint = "frontier init URL  shows every key"
    return Fault(what, hint, at_key=True)


def _place(doc: Document, loc: Path) -> Path:
    """The path in the text: a deployment's value may be its own or inherited from the top level."""
    if ".." in loc:  # of something missing: where it should have been
        loc = loc[: loc.index("..") - 1]
    if loc[:1] != ("deployments",) or len(loc) < 2:
        return loc
    own, top = loc, loc[2:]
    if "deployments" not in doc.tree:
        return top
    while own not in doc.values and top not in doc.values:
        own, top = own[:-1], top[:-1]
    return own if own in doc.values and (len(own) > 2 or not top) else top


def _sorted(complaints: list[Complaint]) -> tuple[Complaint, ...]:
    """In the order of the text, each once: what is inherited is wrong in every deployment."""
    return tuple(sorted(dict.fromkeys(complaints), key=lambda c: (c.line or 0, c.column or 0)))


def _redacted(complaints: tuple[Complaint, ...], secrets: tuple[str, ...]) -> tuple[Complaint, ...]:
    """No secret in any message, not even in the quoted line."""

    def clean(text: str | None) -> str | None:
        if text is None:
            return None
        for secret in secrets:
            text = text.replace(secret, "***")
        return redact(text)

    return tuple(
        Complaint(clean(c.what) or "", clean(c.hint), c.line, c.column, masked_line(clean(c.source_line)))
        for c in complaints
    )
