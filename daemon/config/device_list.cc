#include "daemon/config/device_list.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/suggest.h"

namespace geminid::config {
namespace {

constexpr char kExample[] = "host:0=8GiB,host:1=8GiB@1";
constexpr uint32_t kMaxNumaNode = 1023;

absl::Status Wrong(size_t at, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("character ", at + 1, ": ", what));
}

// Decimal digits only.
bool IsNumber(const std::string& text, uint32_t most, uint32_t* number) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos &&
         absl::SimpleAtoi(text, number) && *number <= most;
}

// `text` begins at character `at` of the list.
absl::StatusOr<v1::Device> ParseDevice(const std::string& text, size_t at) {
  const size_t colon = text.find(':');
  const size_t equals = text.find('=');
  if (colon == std::string::npos || equals == std::string::npos || equals < colon) {
    return Wrong(at, absl::StrCat("'", text, "' is not KIND:INDEX=MEMORY or ",
                                  "KIND:INDEX=MEMORY@NUMA_NODE, as in ", kExample));
  }
  const size_t sign = text.find('@', equals);
  v1::Device device;
  device.set_kind(text.substr(0, colon));
  const absl::StatusOr<shm::DeviceKind> kind = ParseDeviceKind(device.kind());
  if (!kind.ok()) return Wrong(at, std::string(kind.status().message()));
  uint32_t number = 0;
  const std::string index = text.substr(colon + 1, equals - colon - 1);
  if (!IsNumber(index, shm::kMaxDevices - 1, &number)) {
    return Wrong(at + colon + 1,
                 absl::StrCat("'", index, "' is not an index from 0 to ", shm::kMaxDevices - 1));
  }
  device.set_index(number);
  device.set_memory(text.substr(equals + 1, sign == std::string::npos ? sign : sign - equals - 1));
  const absl::StatusOr<uint64_t> bytes = base::ParseBytes(device.memory());
  if (!bytes.ok()) return Wrong(at + equals + 1, std::string(bytes.status().message()));
  if (sign == std::string::npos) return device;
  const std::string node = text.substr(sign + 1);
  if (!IsNumber(node, kMaxNumaNode, &number)) {
    return Wrong(at + sign + 1,
                 absl::StrCat("'", node, "' is not a NUMA node from 0 to ", kMaxNumaNode));
  }
  device.set_numa_node(number);
  return device;
}

}  // namespace

absl::StatusOr<std::vector<v1::Device>> ParseDeviceList(const std::string& text) {
  std::vector<v1::Device> devices;
  size_t at = 0;
  for (const std::string& item : std::vector<std::string>(absl::StrSplit(text, ','))) {
    absl::StatusOr<v1::Device> device = ParseDevice(item, at);
    if (!device.ok()) return device.status();
    devices.push_back(*std::move(device));
    at += item.size() + 1;
  }
  return devices;
}

std::string ToText(const v1::Device& device) {
  std::string text = absl::StrCat(device.kind(), ":", device.index(), "=", device.memory());
  if (device.has_numa_node()) absl::StrAppend(&text, "@", device.numa_node());
  return text;
}

absl::StatusOr<shm::DeviceKind> ParseDeviceKind(const std::string& text) {
  if (text == shm::Name(shm::DeviceKind::kHost)) return shm::DeviceKind::kHost;
  if (text == shm::Name(shm::DeviceKind::kCuda)) {
    return absl::InvalidArgumentError(
        "this daemon has no cuda devices; use host devices, such as host:0=8GiB");
  }
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no kind of device; there is host",
                                                 base::DidYouMean(text, {"host"})));
}

}  // namespace geminid::config
