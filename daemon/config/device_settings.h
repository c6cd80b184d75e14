// Checks the devices of a configuration and turns their messages into settings.
#ifndef GEMINID_DAEMON_CONFIG_DEVICE_SETTINGS_H_
#define GEMINID_DAEMON_CONFIG_DEVICE_SETTINGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/config/device_list.h"

namespace geminid::config {

struct DeviceProblem {
  int position = 0;    // position in Config.device
  std::string within;  // key of the device that is wrong
  std::string text;
};

// Puts the devices into `settings` by index; a device that stands for all GPUs comes last. Returns
// the problems of the devices; the list is empty if there are none.
std::vector<DeviceProblem> ReadDevices(const v1::Config& config,
                                       std::vector<DeviceSetting>* settings);

// INVALID_ARGUMENT if `bytes` is more than one arena can have: no device may be larger.
absl::Status CheckArenaSize(uint64_t bytes);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_DEVICE_SETTINGS_H_
