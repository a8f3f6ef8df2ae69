"""pi 0.73.1; see pi_agent.py."""
from pi_agent import Pi, scenarios

NAME, VERSION = "pi", "0.73.1"
CLIENT = Pi("@mariozechner/pi-coding-agent", VERSION)
prepare, SCENARIOS = CLIENT.prepare, scenarios(CLIENT)
