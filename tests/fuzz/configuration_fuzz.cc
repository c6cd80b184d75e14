// What an operator writes: the configuration file, the list of devices.
#include <string>

#include "daemon/config/config_file.h"
#include "daemon/config/device_list.h"
#include "daemon/config/tenant_by.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  (void)geminid::config::ParseConfigFile("fuzz.json", text);
  (void)geminid::config::ParseConfigFile("fuzz.textproto", text);
  (void)geminid::config::CheckTenant(text);
  const auto devices = geminid::config::ParseDeviceList(text);
  if (!devices.ok()) return 0;
  for (const auto& device : *devices) {
    geminid::fuzz::Require(geminid::config::ParseDeviceList(geminid::config::ToText(device)).ok(),
                           "a device that was read can be read again");
  }
  return 0;
}
