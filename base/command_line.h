// Describes errors of command lines by the word that causes them.
#ifndef GEMINID_BASE_COMMAND_LINE_H_
#define GEMINID_BASE_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <string>

namespace geminid::base {

// Call after `app` refused its arguments with `error`. Describes the first unknown word and what it
// may mean; or the subcommands, if one is missing; else has the error's own message. Says where to
// find help.
std::string DescribeParseError(const CLI::App& app, const CLI::Error& error);

// Whether `app`, which was asked for help, also got unknown words: they are errors, as without
// --help.
bool HasUnknownWords(const CLI::App& app);

// Makes every option of `app` and of its subcommands refuse an empty value, and another flag of the
// same command in place of a value. Such a value usually comes from an unset variable of a script,
// and would silently count as a missing option.
void RefuseEmptyValues(CLI::App* app);

}  // namespace geminid::base

#endif  // GEMINID_BASE_COMMAND_LINE_H_
