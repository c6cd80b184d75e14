// The enumerations of shared memory and of the messages are one; a cast converts between them.
#include <gtest/gtest.h>

#include "geminid/v1/common.pb.h"
#include "proto/shm/types.h"

namespace geminid {
namespace {

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(c));
  return text;
}

TEST(Enums, Tier_HasTheNamesAndNumbersOfTheMessages) {
  const google::protobuf::EnumDescriptor* descriptor = v1::Tier_descriptor();
  ASSERT_EQ(descriptor->value_count(), 4);
  for (int i = 1; i < descriptor->value_count(); ++i) {
    const auto* value = descriptor->value(i);
    EXPECT_EQ(Lower(value->name()),
              std::string("tier_") + shm::Name(static_cast<shm::Tier>(value->number())));
  }
}

TEST(Enums, DeviceKind_HasTheNamesAndNumbersOfTheMessages) {
  const google::protobuf::EnumDescriptor* descriptor = v1::DeviceKind_descriptor();
  ASSERT_EQ(descriptor->value_count(), 3);
  for (int i = 1; i < descriptor->value_count(); ++i) {
    const auto* value = descriptor->value(i);
    EXPECT_EQ(Lower(value->name()), std::string("device_kind_") +
                                        shm::Name(static_cast<shm::DeviceKind>(value->number())));
  }
}

TEST(Enums, ChunkKind_HasTheNamesAndNumbersOfTheMessages) {
  const google::protobuf::EnumDescriptor* descriptor = v1::ChunkKind_descriptor();
  ASSERT_EQ(descriptor->value_count(), 11);
  for (int i = 1; i < descriptor->value_count(); ++i) {
    const auto* value = descriptor->value(i);
    EXPECT_EQ(Lower(value->name()),
              std::string("chunk_kind_") + shm::Name(static_cast<shm::ChunkKind>(value->number())));
  }
}

}  // namespace
}  // namespace geminid
