#include "daemon/config/device_list.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/suggest.h"
#include "daemon/config/size.h"

namespace geminid::config {
namespace {

constexpr char kForms[] =
    "host:INDEX=MEMORY[@NUMA_NODE], cuda:INDEX[=MEMORY][@GPU] or cuda, as in "
    "host:0=8GiB,host:1=8GiB@1,cuda:2=64GiB";
constexpr uint32_t kMaxNumaNode = 1023;

absl::Status Wrong(size_t at, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("character ", at + 1, ": ", what));
}

// Decimal digits only.
bool IsNumber(const std::string& text, uint32_t most, uint32_t* number) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos &&
         absl::SimpleAtoi(text, number) && *number <= most;
}

// Whether `text` has exactly the shape of a GPU's name: 'x' in `shape` stands for one hex digit.
bool HasShape(const std::string& text, const std::string& shape) {
  if (text.size() != shape.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool fits = shape[i] == 'x' ? absl::ascii_isxdigit(static_cast<unsigned char>(text[i]))
                                      : text[i] == shape[i];
    if (!fits) return false;
  }
  return true;
}

// The text of one device, and the positions of its parts.
struct Item {
  std::string text;
  size_t at;  // its position in the list
  shm::DeviceKind kind = shm::DeviceKind::kNone;
  size_t colon = 0;
  size_t equals = 0;  // npos: no memory given
  size_t sign = 0;    // npos: no NUMA node or GPU given
};

absl::Status ParseMemory(const Item& item, v1::Device* device) {
  if (item.equals == std::string::npos) return absl::OkStatus();
  const size_t begin = item.equals + 1;
  device->set_memory(item.text.substr(
      begin, item.sign == std::string::npos ? std::string::npos : item.sign - begin));
  const absl::StatusOr<uint64_t> bytes = ParseSize(device->memory());
  if (bytes.ok()) return absl::OkStatus();
  return Wrong(item.at + begin, std::string(bytes.status().message()));
}

absl::Status ParsePlace(const Item& item, v1::Device* device) {
  if (item.sign == std::string::npos) return absl::OkStatus();
  const std::string place = item.text.substr(item.sign + 1);
  const size_t at = item.at + item.sign + 1;
  if (item.kind == shm::DeviceKind::kCuda) {
    device->set_gpu(place);
    if (IsGpuName(place)) return absl::OkStatus();
    return Wrong(at, absl::StrCat("'", place,
                                  "' is neither the UUID of a GPU nor a PCI address, "
                                  "such as 0000:3b:00.0; nvidia-smi -L and nvidia-smi list them"));
  }
  uint32_t number = 0;
  if (!IsNumber(place, kMaxNumaNode, &number)) {
    return Wrong(at, absl::StrCat("'", place, "' is not a NUMA node from 0 to ", kMaxNumaNode));
  }
  device->set_numa_node(number);
  return absl::OkStatus();
}

// `at`: the position of `text` in the whole list.
absl::StatusOr<v1::Device> ParseDevice(const std::string& text, size_t at) {
  v1::Device device;
  if (text == shm::Name(shm::DeviceKind::kCuda)) {
    device.set_kind(text);
    device.set_all_gpus(true);
    return device;
  }
  Item item = {.text = text, .at = at};
  item.colon = text.find(':');
  item.sign = item.colon == std::string::npos ? item.colon : text.find('@', item.colon);
  item.equals = text.substr(0, item.sign).find('=');
  const bool has_kind = item.colon != std::string::npos && item.equals > item.colon;
  device.set_kind(text.substr(0, item.colon));
  const absl::StatusOr<shm::DeviceKind> kind = ParseDeviceKind(device.kind());
  const bool needs_memory = !kind.ok() || *kind != shm::DeviceKind::kCuda;
  if (!has_kind || (needs_memory && item.equals == std::string::npos)) {
    return Wrong(at, absl::StrCat("'", text, "' is not ", kForms));
  }
  if (!kind.ok()) return Wrong(at, std::string(kind.status().message()));
  item.kind = *kind;
  const size_t begin = item.colon + 1;
  const std::string index = text.substr(begin, std::min(item.equals, item.sign) - begin);
  uint32_t number = 0;
  if (!IsNumber(index, shm::kMaxDevices - 1, &number)) {
    return Wrong(at + begin,
                 absl::StrCat("'", index, "' is not an index from 0 to ", shm::kMaxDevices - 1));
  }
  device.set_index(number);
  absl::Status status = ParseMemory(item, &device);
  if (status.ok()) status = ParsePlace(item, &device);
  if (!status.ok()) return status;
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
  if (device.all_gpus()) return device.kind();
  std::string text = absl::StrCat(device.kind(), ":", device.index());
  if (!device.memory().empty()) absl::StrAppend(&text, "=", device.memory());
  if (device.has_numa_node()) absl::StrAppend(&text, "@", device.numa_node());
  if (!device.gpu().empty()) absl::StrAppend(&text, "@", device.gpu());
  return text;
}

bool IsGpuName(const std::string& text) {
  // nvidia-smi writes a PCI domain with eight digits, Linux with four.
  return HasShape(text, "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx") ||
         HasShape(text, "MIG-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx") ||
         HasShape(text, "xxxx:xx:xx.x") || HasShape(text, "xxxxxxxx:xx:xx.x");
}

absl::StatusOr<shm::DeviceKind> ParseDeviceKind(const std::string& text) {
  for (const shm::DeviceKind kind : {shm::DeviceKind::kHost, shm::DeviceKind::kCuda}) {
    if (text == shm::Name(kind)) return kind;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a kind of device; the kinds are host and cuda",
                   base::DidYouMean(text, {"host", "cuda"})));
}

}  // namespace geminid::config
