"""Loading a config: YAML text to a `Config`, or a ConfigError with every complaint: place, line,
cause and hint.

Values given beside the file, as `--set requests=600`, are put into its YAML nodes before anything
is validated. A sound config that is probably not what was meant gets warnings.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import yaml
from pydantic import ValidationError

from frontier import registry
from frontier.client.secrets import Secrets, looks_like_a_key, masked_line
from frontier.config.advice import advice
from frontier.config.complaints import Complaint, ConfigError
from frontier.config.deployment import DeploymentConfig
from frontier.config.schema import DOUBLINGS, EARLIER, LEFT_OUT, Config
from frontier.config.shape_keys import SESSIONS, ReadSessions
from frontier.config.yaml_source import YamlDocument, compose, fill, is_null
from frontier.core.model.errors import UsageError
from frontier.core.model.shapes import Shape
from frontier.core.model.text import did_you_mean
from frontier.fields import Path, Problem, keys_at, problems_of, shown, unknown_key, without_nulls
from frontier.store.records import build

_SWEEP_KEYS = tuple(keys_at(Config, ()))
_DEPLOYMENT_KEYS = tuple(key for key in keys_at(DeploymentConfig, ()) if key != "name")
_MERGED = ("simulator", "timeouts", "headers", "extra_body")
"""Mappings that a deployment extends key by key; its other keys replace the top level's."""

_SYNONYMS = {
    "api_key": ("keys are not written into a config", "name its variable: api_key_env: OPENAI_API_KEY"),
    "base_url": (None, "write endpoint"),
    "url": (None, "write endpoint"),
    "server": (None, "write endpoint"),
    "host": (None, "write endpoint"),
    "backend": (None, "write endpoint: simulator, or dialect: vllm"),
    "isl": (None, "write shapes: [1024/256]"),
    "osl": (None, "write shapes: [1024/256]"),
    "workloads": (None, "write shapes"),
    "slo": (None, "write sla"),
    "num_requests": (None, "write requests"),
    "num_prompts": (None, "write requests"),
    "max_requests": (None, "write requests"),
    "duration": (None, "write max_time"),
    "timeout": (None, "write timeouts: {total: 30min}"),
    "temperature": (None, "write extra_body: {temperature: 0}"),
    "variants": (None, "write deployments"),
    "runs": (None, "write repeats"),
    "tiers": (None, "write sla: {gold: {p99_ttft: 200ms}}"),
    "percentiles": (None, "write them into the limits: sla: {p99_ttft: 500ms}"),
    "goodput": (None, "write sla"),
    "max_tokens": (None, "write shapes: [1024/256], input/output tokens"),
    "warmups": (None, "write warmup: 20s"),
    "max_seconds": (None, "write max_time"),
    "dataset": (None, "write prompts: path.jsonl, or prompts: random or natural"),
    "tokenizer": ("prompts are fitted to the server's own token count", "remove it"),
    **dict.fromkeys(
        ("request_rate", "rates", "qps", "rps", "arrival_rate"), (None, "write rate: [1, 2, 4], requests per second")
    ),
    "burstiness": (None, "write arrivals: {gamma: {cv: 2}}"),
    **dict.fromkeys(
        ("users", "max_concurrency", "concurrencies", "num_users", "streams", "batch_size", "clients"),
        (None, "write concurrency: [1, 2, 4, 8], the requests in flight"),
    ),
    **dict.fromkeys(
        (
            "input_len",
            "output_len",
            "input_tokens",
            "output_tokens",
            "random_input_len",
            "random_output_len",
            "prompt_tokens",
        ),
        (None, "write shapes: [1024/256], input/output tokens"),
    ),
}


# ---- values given beside the file

_TIME_OF_DAY = re.compile(r"\d{1,2}:\d\d")
_MAP, _STR = "tag:yaml.org,2002:map", "tag:yaml.org,2002:str"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value for a key: `key` ('sla.p99_ttft') gets `value` (YAML). `said` is its name in messages
    ('--set sla.p99_ttft=400ms').
    """

    said: str
    key: str
    value: str

    @classmethod
    def of(cls, text: str) -> "Setting":
        """Of 'key=value'. ConfigError without the '='."""
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            where = f"--set {text}"
            complaint = Complaint("this is not key=value", "write  --set requests=600", where=where)
            raise ConfigError(where, (complaint,))
        return cls(f"--set {text}", key.strip(), value.strip())


def _apply(root: yaml.MappingNode, setting: Setting) -> None:
    """Put the value in its place. A Problem, or the ConfigError of its text, where that is
    impossible.
    """
    value = f'"{setting.value}"' if _TIME_OF_DAY.fullmatch(setting.value) else setting.value
    given, given_doc = compose(f"value: {value}\n", setting.said)
    if given_doc.complaints:
        raise ConfigError("", tuple(given_doc.complaints))
    if len(given.value) != 1 or not value.isprintable():
        raise Problem("the value is not one value", "quote it")
    holder: yaml.Node = root
    *outer, last = parts = setting.key.split(".")
    for i, part in enumerate(outer):
        node = _entry(holder, part, parts[:i])
        if node is None or is_null(node):
            mark = given.start_mark
            node = yaml.MappingNode(_MAP, [], mark, mark, flow_style=True)
            _put(holder, part, node, parts[:i])
        if isinstance(node, yaml.ScalarNode):
            whole = ".".join(parts[: i + 1])
            raise Problem(f"{whole} holds no keys to set one of", f"set it as a whole:  --set '{whole}=...'")
        holder = node
    _put(holder, last, given.value[0][1], outer)


def _entry(holder: yaml.Node, part: str, path: Sequence[str]) -> yaml.Node | None:
    """The node under a key of a mapping, or the entry of that name or position in a list; None when
    there is no such node.
    """
    if isinstance(holder, yaml.MappingNode):
        return next((node for key, node in holder.value if key.value == part), None)
    return holder.value[_index(holder, part, path)]  # type: ignore[no-any-return]


def _put(holder: yaml.Node, part: str, node: yaml.Node, path: Sequence[str]) -> None:
    """Replace the node of a key or of a list's entry, or add the key."""
    if isinstance(holder, yaml.MappingNode):
        key = yaml.ScalarNode(_STR, part, node.start_mark, node.end_mark)
        index = next((i for i, (key, _) in enumerate(holder.value) if key.value == part), len(holder.value))
        holder.value[index : index + 1] = [(key, node)]
    else:
        holder.value[_index(holder, part, path)] = node


def _index(holder: yaml.Node, part: str, path: Sequence[str]) -> int:
    names: list[str | None] = [
        next((value.value for key, value in item.value if key.value == "name"), None)
        if isinstance(item, yaml.MappingNode)
        else None
        for item in holder.value
    ]
    if part in names:
        return names.index(part)
    if part.isdecimal() and len(part) < 6 and int(part) < len(names):
        return int(part)
    known = ", ".join(name for name in names if name is not None)
    raise Problem(f"there is no {part!r} in {'.'.join(path)}", f"known: {known}" if known else None)


def rendered(root: yaml.MappingNode) -> str:
    """The nodes as YAML, scalars as they were written; comments are lost."""
    text: str = yaml.serialize(root, Dumper=yaml.SafeDumper, width=10**9, allow_unicode=True)
    return text


# ---- loading


def load_config(
    text: str,
    file: str,
    settings: Sequence[Setting] = (),
    begun: Mapping[str, Any] | None = None,
    *,
    read_sessions: ReadSessions | None = None,
) -> Config:
    """The config in `text`; messages call it `file`. ConfigError with every complaint otherwise.

    `settings` replace or add single values. `begun` is the manifest of the run that the config
    belongs to: a key that is left out means what it meant when the run was begun. Nothing is read
    beside `text`, neither the environment nor files. The exception is files of sessions, by
    `read_sessions`; without it, their content is taken from `begun`.
    """
    secrets: list[str] = []
    try:
        root, doc = composed(text, file, settings)
        expanded = _expanded(doc, root)
        fill(doc, root)
        config = _validated(doc, _leaked(doc, secrets), left_out(begun), read_sessions or partial(_kept, begun or {}))
        config._measured_by = expanded
        return config
    except ConfigError as error:
        raise ConfigError(file, without_secrets(error.complaints, Secrets.of((), secrets))) from None


def config_text(text: str, file: str, settings: Sequence[Setting] = ()) -> str:
    """The text of a sound config as a run keeps it: the user's own, or YAML with the settings put
    in.
    """
    if not settings:
        return text
    made_of = "".join(f"# {file} with  {setting.said}\n" for setting in settings)
    return made_of + rendered(composed(text, file, settings)[0])


def composed(text: str, file: str, settings: Sequence[Setting]) -> tuple[yaml.MappingNode, YamlDocument]:
    """The nodes of a text with the settings put in, in order. A setting that cannot be put in is
    among the document's complaints.

    The mark of each such node has the option as its name, so that a complaint about the value names
    the option.
    """
    root, doc = compose(text, file)
    for setting in settings:
        try:
            _apply(root, setting)
        except (Problem, ConfigError) as error:
            first = error if isinstance(error, Problem) else error.complaints[0]
            doc.complaints.append(Complaint(first.what, first.hint, where=setting.said))
    return root, doc


def _expanded(doc: YamlDocument, root: yaml.MappingNode) -> str:
    """Expand one deployment into several where the config says so. Returns the command that
    measures such a config.
    """

    def complain(mark: Any, what: str, hint: str) -> None:
        doc.complaints.append(doc.at_mark(mark, what, hint))

    made = (command for command, row in registry.installed(registry.EXPANSIONS) if row.load()(root, complain))
    return next(made, "sweep")


def left_out(begun: Mapping[str, Any] | None) -> dict[str, Any]:
    """The meaning of left-out keys in the run with this manifest; without a manifest, in a
    new run.
    """
    if begun is None:
        return dict(LEFT_OUT)
    kept = {} if "imported" in begun else begun.get("defaults", EARLIER)
    return {
        **LEFT_OUT,
        **DOUBLINGS,
        **({key: kept[key] for key in LEFT_OUT.keys() & kept} if isinstance(kept, Mapping) else {}),
    }


def _kept(begun: Mapping[str, Any], path: str, _kind: str = SESSIONS) -> Shape:
    """The sessions or requests of a file as the run's manifest has them. UsageError where it has
    none.
    """
    try:
        kept: Shape = build(Shape, begun["canonical"]["sessions"][path])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UsageError("the sessions of a file are read by a sweep", "start one with this config") from None
    return kept


def _validated(
    doc: YamlDocument, leaks: list[Complaint], defaults: Mapping[str, Any], read_sessions: ReadSessions
) -> Config:
    complaints = [*_without_value(doc), *_without_name(doc)]
    config: Config | None = None
    try:
        left = {key: value for key, value in defaults.items() if key != "concurrency" or doc.tree.get("rate") is None}
        tree = without_nulls(left) | _with_inherited(doc.tree)
        config = Config.model_validate(tree, context={SESSIONS: read_sessions})
    except ValidationError as error:
        complaints += [_complaint(doc, problem) for problem in problems_of(error, Config, _unknown_key)]
    except UnicodeEncodeError:
        what = "a text holds half a character, as the escape \\ud83d is"
        raise ConfigError(doc.file, (Complaint(what, "write the character itself"),)) from None
    # What is wrong with the text of a value comes first: it need not be what was meant.
    unclear = {_position(c) for c in doc.complaints}
    complaints = [*doc.complaints, *(c for c in complaints if _position(c) not in unclear)]
    taken = {_position(c) for c in complaints}
    complaints += [c for c in leaks if _position(c) not in taken]
    if complaints or config is None:
        # In the order of the text, each once: what is inherited is wrong in every deployment.
        raise ConfigError(doc.file, tuple(sorted(dict.fromkeys(complaints), key=_position)))
    config._warnings = tuple(_complaint(doc, problem) for problem in advice(config))
    return config


def _position(complaint: Complaint) -> tuple[str, int, int]:
    return complaint.where or "", complaint.line or 0, complaint.column or 0


# ---- before validation


def _leaked(doc: YamlDocument, secrets: list[str]) -> list[Complaint]:
    """Complaints about values that look like secret keys, wherever they are; the values are added
    to the secrets.
    """
    complaints = []
    for path in doc.nodes:
        text, key = doc.text(path), next((part for part in reversed(path) if isinstance(part, str)), "the config")
        if looks_like_a_key(text) and key != "api_key_env":
            what = f"{shown(key)[1:-1]} holds what looks like a key; keys come from the environment"
            complaints.append(
                doc.complaint(path, what, "put it into a variable and name that: api_key_env: OPENAI_API_KEY")
            )
            secrets.append(text)
        elif path[-1:] in (("api_key_env",), ("api_key",)) and len(text) >= 6:
            secrets.append(text)
    return complaints


def _without_value(doc: YamlDocument) -> list[Complaint]:
    """Complaints about keys without a value: to read them as 'not given' would be a guess."""
    return [
        doc.complaint(path, f"{path[-1]} has no value", "write one, or remove the line", at_key=True)
        for path in doc.keys
        if "extra_body" not in path and is_null(doc.nodes[path])
    ]


def _without_name(doc: YamlDocument) -> list[Complaint]:
    """Complaints about deployments without a name, which they need where several are compared."""
    listed = doc.tree.get("deployments")
    return [
        doc.complaint(("deployments", i), "the deployment has no name", "add  name: fp8")
        for i, item in enumerate(listed if isinstance(listed, list) else [])
        if isinstance(item, dict) and "name" not in item
    ]


def _with_inherited(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The sweep's keys as they are, and every deployment with what it inherits from the top
    level.
    """
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


# ---- after validation


def _complaint(doc: YamlDocument, problem: Problem) -> Complaint:
    """A problem as a complaint at its place in the text."""
    path = _place(doc, problem.path)
    key = next((part for part in reversed(path) if isinstance(part, str)), "the config")
    named = problem.named(key, doc.text(path))
    return doc.complaint(path, named.what, named.hint, at_key=problem.at_key)


def _place(doc: YamlDocument, path: Path) -> Path:
    """The path in the text, as a deployment's value may be inherited from the top level."""
    if path[:1] != ("deployments",) or len(path) < 2:
        return path
    own, top = path, path[2:]
    if "deployments" not in doc.tree:
        return top
    while own not in doc.nodes and top not in doc.nodes:
        own, top = own[:-1], top[:-1]
    return own if own in doc.nodes and (len(own) > 2 or not top) else top


def _unknown_key(key: str, path: Path, known: list[str]) -> Problem:
    """The problem of an unknown key. For a key of another tool the hint names ours."""
    where, in_deployment = (*path, key), path[:1] == ("deployments",) and len(path) == 2
    if in_deployment and key in _SWEEP_KEYS:
        what = f"{key} holds for the whole sweep, not for one deployment"
        return Problem(what, "move it to the top", *where, at_key=True)
    what = f"unknown key {shown(key)}"
    if key == "flops" and path[-1:] == ("hardware",):
        return Problem(what, "write tflops: 989  (dense, of one GPU)", *where, at_key=True)
    if key in _SYNONYMS and (in_deployment or not path):
        why, hint = _SYNONYMS[key]
        return Problem(f"{what}; {why}" if why else what, hint, *where, at_key=True)
    if path:
        return unknown_key(key, path, known)
    likely = did_you_mean(key, (*_SWEEP_KEYS, *_DEPLOYMENT_KEYS))
    return Problem(what, likely or "frontier init URL  shows every key", *where, at_key=True)


def without_secrets(complaints: Sequence[Complaint], hidden: Secrets) -> tuple[Complaint, ...]:
    """The complaints without any secret, not even in the quoted line."""

    def clean(text: str | None) -> str | None:
        return None if text is None else hidden.redact(text)

    return tuple(
        Complaint(
            clean(c.what) or "", clean(c.hint), c.line, c.column, masked_line(clean(c.source_line)), clean(c.where)
        )
        for c in complaints
    )
