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

}  // namespace geminid::base

#endif  // GEMINID_BASE_COMMAND_LINE_H_
