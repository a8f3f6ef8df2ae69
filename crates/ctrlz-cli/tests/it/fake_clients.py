#!/usr/bin/env python3
"""Fakes the plugin commands of claude, codex and gemini: writes the same files as the real ones."""
import json
import os
import pathlib
import shutil
import sys

name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
home = pathlib.Path(os.environ["HOME"])


def edit(path, change):
    value = json.loads(path.read_text()) if path.exists() else {}
    change(value)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2))


def claude():
    plugins = home / ".claude/plugins"
    if words[1] == "marketplace":
        entry = {"source": {"source": "directory", "path": words[3]}}
        settings = home / ".claude/settings.json"
        edit(settings, lambda v: v.setdefault("extraKnownMarketplaces", {}).update(ctrlz=entry))
        edit(plugins / "known_marketplaces.json", lambda v: v.update(ctrlz=entry))
        (plugins / "marketplaces").mkdir(exist_ok=True)
    else:
        edit(home / ".claude/settings.json",
             lambda v: v.setdefault("enabledPlugins", {}).update({words[2]: True}))
        edit(plugins / "installed_plugins.json",
             lambda v: v.update(version=2, plugins={**v.get("plugins", {}), words[2]: []}))
        (plugins / "cache/ctrlz/ctrlz/0.1.0").mkdir(parents=True)


def codex():
    config = home / ".codex/config.toml"
    config.parent.mkdir(exist_ok=True)
    text = config.read_text() + "\n" if config.exists() else ""
    if words[1] == "marketplace":
        (home / ".codex/.tmp/marketplaces").mkdir(parents=True)
        text += f'[marketplaces.ctrlz]\nsource_type = "local"\nsource = "{words[3]}"\n'
    else:
        text += f'[plugins."{words[2]}"]\nenabled = true\n'
        source = text.split('source = "')[1].split('"')[0]
        shutil.copytree(source, home / ".codex/plugins/cache/ctrlz/ctrlz/0.1.0")
    config.write_text(text)


def gemini():
    top = home / ".gemini"
    shutil.copytree(words[2], top / "extensions/ctrlz")
    edit(top / "extensions/extension-enablement.json", lambda v: v.update(ctrlz={"overrides": []}))
    edit(top / "extension_integrity.json",
         lambda v: v.update(store={**v.get("store", {}), "ctrlz": {}}, signature="new"))
    edit(top / "projects.json", lambda v: v.setdefault("projects", {}).update({words[2]: "ours"}))
    for kind in ("history", "tmp"):
        (top / kind / "ours").mkdir(parents=True)


{"claude": claude, "codex": codex, "gemini": gemini}[name]()
