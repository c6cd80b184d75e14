// A configuration file, .textproto or .json. Both formats hold the message Config of config.proto.
#ifndef GEMINID_DAEMON_CONFIG_CONFIG_FILE_H_
#define GEMINID_DAEMON_CONFIG_CONFIG_FILE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "geminid/v1/config.pb.h"

namespace geminid::config {

// Larger files are refused before they are read.
inline constexpr size_t kMaxConfigFileBytes = size_t{1} << 20;

struct ConfigFile {
  std::string path;
  v1::Config config;
  // Where each value stands in the file, by its key, such as "socket" or "quotas[1].tenant". The
  // file has no value for a key that is missing here.
  std::map<std::string, base::Position> positions;
};

// The path's extension decides the format. For malformed text, unknown keys and values of a wrong
// type: INVALID_ARGUMENT with one line per problem, each "PATH:LINE:COLUMN: problem".
absl::StatusOr<ConfigFile> ParseConfigFile(const std::string& path, const std::string& text);

// Reads the file and parses it. INVALID_ARGUMENT also if the file cannot be read.
absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_CONFIG_FILE_H_
