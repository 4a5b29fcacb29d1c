"""Values of a knob: the deployments that `apply` and `vary` make of one in a config, on one running
server. The first value is the baseline.

    vary: {watts: [400, 320, 260]}
    apply: sudo nvidia-smi -pl {watts}
    check: nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits
"""

import math
from collections.abc import Iterator

import yaml

from frontier.extras.tune.variants import (
    KEYS,
    TEXT,
    Complain,
    Mistake,
    check_names,
    combined,
    deployments_in,
    entries,
    mapping,
    named,
    refuse,
    words_of,
)

_LIKE_THIS = "write  vary: {watts: [400, 320, 260]}"
_NUMBER = "tag:yaml.org,2002:float"


def expand(root: yaml.MappingNode, complain: Complain) -> bool:
    """Put a deployment of each value in the place of that with a knob. True where there is one."""
    listed = deployments_in(root)
    turned = next((n for n in listed if isinstance(n, yaml.MappingNode) and "apply" in entries(n)), None)
    if turned is None:
        return False
    try:
        listed[:] = list(_made_of(turned, listed, complain))
    except Mistake:  # what is wrong was said
        gone = (*KEYS, "apply", "check", "settle")
        turned.value = [(key, value) for key, value in turned.value if key.value not in gone]
    return True


def _made_of(node: yaml.MappingNode, listed: list[yaml.Node], complain: Complain) -> Iterator[yaml.MappingNode]:
    """The node of each value's deployment."""
    given = entries(node)
    command = given["apply"]
    if len(listed) > 1:
        other = next(each for each in listed if each is not node)
        refuse(complain, other, "a knob is turned for one deployment alone", "remove the others")
    if not isinstance(command, yaml.ScalarNode):
        refuse(complain, command, "apply is a command", "write  apply: sudo nvidia-smi -pl {watts}")
    if "start" in given:
        what = "start and apply together: a server is started for each value, or keeps running while a knob is turned"
        refuse(complain, command, what, "remove one of the two; a race starts servers:  frontier tune")
    if getattr(given.get("endpoint"), "value", None) == "simulator":
        what = "the embedded engine has no knob, as each deployment has an engine of its own"
        refuse(complain, command, what, "serve it by  frontier serve-sim,  and name that endpoint")
    if "check" not in given:
        what = "apply has no check: what the knob stands at would not be known, and not be put back"
        refuse(complain, command, what, "add  check: COMMAND  that prints the value")
    if given.keys().isdisjoint(KEYS):
        refuse(complain, command, "apply has no values to set", _LIKE_THIS)
    own, varied, combinations = combined(node, complain)
    if len(combinations[0][1]) > 1:
        refuse(complain, varied, "a knob has one name, and there are several", "vary one of them")
    check_names(own, varied, combinations, complain, ("apply",))
    known: set[float] = set()
    for name, values in named(own, combinations):
        ((knob, value),) = values.items()
        if (read := _number(value, complain)) in known:
            what = f"{knob} is {' '.join(words_of(value))} twice"
            refuse(complain, value, what, "remove one of them")
        known.add(read)
        number = yaml.ScalarNode(_NUMBER, repr(read), value.start_mark, value.end_mark)
        label = yaml.ScalarNode(TEXT, knob, value.start_mark, value.end_mark, style='"')
        apply = mapping({"command": command, "name": label, "value": number}, command)
        title = yaml.ScalarNode(TEXT, name, node.start_mark, node.end_mark)
        yield mapping({**own, "name": title, "apply": apply}, node)


def _number(node: yaml.Node, complain: Complain) -> float:
    """The number that a value is. A complaint about any other value."""
    words = words_of(node)
    try:
        (number,) = map(float, words)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        refuse(complain, node, "a value of a knob is a number", _LIKE_THIS)
    return number
