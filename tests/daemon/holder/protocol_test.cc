#include "daemon/holder/protocol.h"

#include <cstring>
#include <string>

#include "gtest/gtest.h"

namespace geminid::holder {
namespace {

std::optional<Message> ReadAgain(const Wire& wire) {
  return Decode(std::as_bytes(std::span(&wire, 1)));
}

TEST(HolderProtocol, EveryMessage_IsReadAsItWasWritten) {
  for (const Message& message :
       {Message{.op = Op::kPut, .name = "s7-pool12"}, Message{.op = Op::kRemove, .name = "a"},
        Message{.op = Op::kList}, Message{.op = Op::kItem, .name = std::string(kMaxNameBytes, 'x')},
        Message{.op = Op::kEnd, .count = 4000}, Message{.op = Op::kFinish}}) {
    EXPECT_EQ(ReadAgain(Encode(message)), message);
  }
}

TEST(HolderProtocol, NameThatIsNone_IsRefused) {
  for (const std::string& name : {std::string(), std::string("two words"), std::string("a:b"),
                                  std::string("\x01"), std::string(kMaxNameBytes + 1, 'x')}) {
    EXPECT_FALSE(IsName(name)) << name;
    EXPECT_EQ(ReadAgain(Encode({.op = Op::kPut, .name = name})), std::nullopt) << name;
  }
}

TEST(HolderProtocol, OtherBytes_AreNoMessage) {
  const Wire good = Encode({.op = Op::kPut, .name = "a"});
  Wire other = good;
  other.magic ^= 1;
  EXPECT_EQ(ReadAgain(other), std::nullopt);
  other = good;
  other.version = kVersion + 1;
  EXPECT_EQ(ReadAgain(other), std::nullopt);
  other = good;
  other.op = 0;
  EXPECT_EQ(ReadAgain(other), std::nullopt);
  other.op = 8;
  EXPECT_EQ(ReadAgain(other), std::nullopt);
  other = good;
  std::memset(other.name, 'x', sizeof(other.name));  // no terminating zero
  EXPECT_EQ(ReadAgain(other), std::nullopt);
  EXPECT_EQ(Decode(std::as_bytes(std::span(&good, 1)).first(100)), std::nullopt);
  EXPECT_EQ(Decode({}), std::nullopt);
}

TEST(HolderProtocol, VersionOf_IsReadOfAnyVersion) {
  Wire wire = Encode({.op = Op::kList});
  const auto version = [&] { return VersionOf(std::as_bytes(std::span(&wire, 1))); };
  EXPECT_EQ(version(), kVersion);
  wire.version = 2;
  wire.op = 99;
  EXPECT_EQ(version(), 2);
  wire.magic ^= 1;
  EXPECT_EQ(version(), std::nullopt);
}

}  // namespace
}  // namespace geminid::holder
