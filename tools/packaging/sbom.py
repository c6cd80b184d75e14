"""Makes a bill of materials in the form of CycloneDX 1.6: the packages linked into our programs, or compiled into them."""

import urllib.parse
import uuid

SPECIFICATION = "1.6"
# Packages of header-only libraries.
COMPILED_IN = ["libcli11-dev", "libboost1.74-dev", "nlohmann-json3-dev"]


def component(name, version, source, how):
    return {"type": "library", "bom-ref": f"deb:{name}", "name": name, "version": version,
            "purl": f"pkg:deb/debian/{name}@{urllib.parse.quote(version, safe='~')}",
            "properties": [{"name": "geminid:how", "value": how}, {"name": "geminid:source", "value": source}]}


def bill(version, linked, compiled_in):
    """Returns the bill. `linked` and `compiled_in`: {package: (version, source)}. The same input gives the same bill."""
    ours = {"type": "application", "bom-ref": "geminid", "name": "geminid", "version": version,
            "licenses": [{"license": {"id": "Apache-2.0"}}]}
    components = [component(name, *facts, how) for how, packages in (("linked", linked), ("compiled in", compiled_in))
                  for name, facts in sorted(packages.items())]
    number = uuid.uuid5(uuid.NAMESPACE_URL, "geminid " + version + "".join(c["purl"] for c in components))
    return {"bomFormat": "CycloneDX", "specVersion": SPECIFICATION, "serialNumber": f"urn:uuid:{number}", "version": 1,
            "metadata": {"component": ours}, "components": components,
            "dependencies": [{"ref": "geminid", "dependsOn": [c["bom-ref"] for c in components]}]}
