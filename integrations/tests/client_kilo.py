"""Kilo, which is based on OpenCode: the same plugin in another directory, with another name."""
from client_opencode import OpenCode, scenarios

NAME, VERSION = "kilo", "7.7.7"


class Kilo(OpenCode):
    NAME = "kilo"
    package, version, program_name = "@kilocode/cli", VERSION, "kilo"
    binaries = "@kilocode/cli-*/bin/kilo"
    quiet = "KILO"
    user_config = {".config/kilo/kilo.jsonc": '{\n  // mine\n  "share": "disabled",\n}\n'}


CLIENT = Kilo()
prepare, SCENARIOS = CLIENT.prepare, scenarios(CLIENT)
FEW = ("whole turn", "beyond", "uninstalled")
