#include "proto/shm/device.h"

#include <cstddef>

namespace geminid::shm {

std::string ToString(const Uuid& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid[i] >> 4];
    text += kDigits[uuid[i] & 0xf];
  }
  return text;
}

Uuid MakeUuid(uint64_t high, uint64_t low) {
  constexpr uint8_t kVersionCustom = 0x80;
  constexpr uint8_t kVariant = 0x80;
  Uuid uuid;
  for (size_t i = 0; i < 8; ++i) {
    uuid[i] = static_cast<uint8_t>(high >> (56 - 8 * i));
    uuid[8 + i] = static_cast<uint8_t>(low >> (56 - 8 * i));
  }
  uuid[6] = static_cast<uint8_t>(kVersionCustom | (uuid[6] & 0x0f));
  uuid[8] = static_cast<uint8_t>(kVariant | (uuid[8] & 0x3f));
  return uuid;
}

}  // namespace geminid::shm
