// What is wrong with a command line, in words that name the culprit.
#ifndef GEMINID_BASE_COMMAND_LINE_H_
#define GEMINID_BASE_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <string>

namespace geminid::base {

// After `app` refused its arguments with `error`: the first word that is not known, and what was
// perhaps meant; or the subcommands of which one is missing; else the error's own words. Says where
// to look further.
std::string DescribeParseError(const CLI::App& app, const CLI::Error& error);

// Whether `app`, which was asked for its help, was also given words that it does not know: they are
// an error then as they are without --help.
bool HasUnknownWords(const CLI::App& app);

// Makes every option of `app` and of its subcommands refuse an empty value: it is a script's variable
// that is not set, and taken for an option left out it would be passed over in silence.
void RefuseEmptyValues(CLI::App* app);

}  // namespace geminid::base

#endif  // GEMINID_BASE_COMMAND_LINE_H_
