// A configuration file: .textproto or .json, both the message Config of config.proto.
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
  // Where each value stood, by its key: "socket", "quotas[1].tenant". A key that is not here was
  // not in the file.
  std::map<std::string, base::Position> positions;
};

// The format follows from the path's extension. INVALID_ARGUMENT with one line per problem, each
// "PATH:LINE:COLUMN: problem", for malformed text, unknown keys and values of the wrong type.
absl::StatusOr<ConfigFile> ParseConfigFile(const std::string& path, const std::string& text);

// Reads and parses.
absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_CONFIG_FILE_H_
