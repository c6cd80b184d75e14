// geminictl schema: the form of what --json prints, as a JSON Schema; needs no daemon.
#ifndef GEMINID_TOOLS_GEMINICTL_COMMANDS_SCHEMA_H_
#define GEMINID_TOOLS_GEMINICTL_COMMANDS_SCHEMA_H_

#include <string>

#include "tools/geminictl/output/context.h"

namespace geminid::ctl {

// JSON Schema 2020-12. Under "$defs" is one definition per document, by the words of its subcommand
// ("ls sessions"), and one per message in them, by its name. docs/geminictl.schema.json is a copy.
std::string JsonSchema();

absl::StatusOr<int> RunSchema(const Context& context);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_COMMANDS_SCHEMA_H_
