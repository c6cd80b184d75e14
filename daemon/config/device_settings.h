// The devices of a configuration, checked: from their messages to their settings.
#ifndef GEMINID_DAEMON_CONFIG_DEVICE_SETTINGS_H_
#define GEMINID_DAEMON_CONFIG_DEVICE_SETTINGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/config/device_list.h"

namespace geminid::config {

struct DeviceProblem {
  int position = 0;    // among the devices, as they are written
  std::string within;  // the key of it that is wrong
  std::string text;
};

// Puts the devices into `settings` by index, those that stand for all GPUs last. Returns what is
// wrong with them; empty: nothing.
std::vector<DeviceProblem> ReadDevices(const v1::Config& config,
                                       std::vector<DeviceSetting>* settings);

// INVALID_ARGUMENT for more than an arena can have: no device is larger.
absl::Status CheckArenaSize(uint64_t bytes);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_DEVICE_SETTINGS_H_
