#include "training/launch/host_frames.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace geminid::trainer {
namespace {

const HostFrame kWords = {.type = HostFrameType::kWords,
                          .fields = {"3", std::string("a\0\xff\nb", 5), ""}};
const HostFrame kBeat = {.type = HostFrameType::kBeat};

std::vector<HostFrame> FramesOf(HostFrameReader& reader) {
  std::vector<HostFrame> frames;
  for (;;) {
    const auto frame = reader.Next();
    EXPECT_TRUE(frame.ok()) << frame.status();
    if (!frame.ok() || !frame->has_value()) return frames;
    frames.push_back(**frame);
  }
}

TEST(HostFrame, OfAnyBytes_IsReadAsItWasWritten) {
  HostFrameReader reader;
  reader.Append(Encode(kWords) + Encode(kBeat));
  EXPECT_EQ(FramesOf(reader), (std::vector<HostFrame>{kWords, kBeat}));
}

TEST(HostFrame, InPieces_IsReadOnceItIsWhole) {
  const std::string bytes = Encode(kWords);
  HostFrameReader reader;
  for (const char byte : bytes.substr(0, bytes.size() - 1)) {
    reader.Append(std::string(1, byte));
    EXPECT_TRUE(FramesOf(reader).empty());
  }
  reader.Append(bytes.substr(bytes.size() - 1));
  EXPECT_EQ(FramesOf(reader), std::vector<HostFrame>{kWords});
}

TEST(HostFrame, OfSomethingElse_IsRefused) {
  const std::string longer_than_its_frame("\x06\x05\0\0\0\x09\0\0\0x", 10);
  const std::string half_a_length("\x06\x02\0\0\0\x01\0", 7);
  for (const std::string& bytes :
       {std::string("Welcome!"), std::string(5, '\0'), std::string("\x06\xff\xff\xff\xff", 5),
        longer_than_its_frame, half_a_length}) {
    HostFrameReader reader;
    reader.Append(bytes);
    EXPECT_EQ(reader.Next().status().code(), absl::StatusCode::kInvalidArgument) << bytes;
  }
}

TEST(FieldReader, OfListsAndNumbers_TakesThemInOrder) {
  HostFrame frame = {.type = HostFrameType::kPrepare, .fields = {"7"}};
  AppendList({"a", "b"}, &frame);
  frame.fields.insert(frame.fields.end(), {"c", "d"});
  FieldReader fields(frame);
  EXPECT_EQ(fields.Number().value(), 7);
  EXPECT_EQ(fields.List().value(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(fields.Rest(), (std::vector<std::string>{"c", "d"}));
}

TEST(FieldReader, OfFieldsThatAreNotThere_IsAnError) {
  const HostFrame frame = {.type = HostFrameType::kPrepare, .fields = {"2", "a"}};
  EXPECT_FALSE(FieldReader(frame).List().ok());
  const HostFrame words = {.type = HostFrameType::kPrepare, .fields = {"two"}};
  EXPECT_FALSE(FieldReader(words).Number().ok());
  EXPECT_FALSE(FieldReader(kBeat).Text().ok());
}

TEST(Greeting, OfAVersion_IsReadAsItWasWritten) {
  const ProgramVersion version = {.version = "1.2.3", .build = "abc"};
  const std::string line = GreetingOf(version);
  EXPECT_EQ(line.back(), '\n');
  EXPECT_EQ(ParseGreeting(line.substr(0, line.size() - 1)), version);
  EXPECT_EQ(ParseGreeting("Last login: today"), std::nullopt);
  EXPECT_EQ(ParseGreeting("geminid-host 2 1.2.3 abc"), std::nullopt);
}

TEST(OwnVersion, OfThisProgram_HasTheHashOfItsFile) {
  const auto version = OwnVersion();
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(version->build.size(), 64u);
  EXPECT_EQ(*OwnVersion(), *version);
}

TEST(HandoverTexts, OfAHostWithAnotherClock_SayHowLongAgoItBegan) {
  const absl::Time here = absl::UnixEpoch() + absl::Hours(5), there = absl::UnixEpoch();
  Handover handover = {.number = 3,
                       .request = uint64_t{1} << 40,
                       .ranks_before = 2,
                       .ranks_after = 4,
                       .step = 12,
                       .bytes = uint64_t{1} << 36,
                       .began = here - absl::Milliseconds(250),
                       .host = "beta",
                       .words = "data=2\n1",
                       .followed = true};
  const auto got = HandoverFrom(TextsOf(handover, here), there);
  ASSERT_TRUE(got.ok()) << got.status();
  handover.began = there - absl::Milliseconds(250);
  EXPECT_EQ(*got, handover);
  EXPECT_EQ(HandoverFrom({}, there).value(), std::nullopt);
  EXPECT_FALSE(HandoverFrom({"3", "x"}, there).ok());
}

TEST(MoveTexts, OfAnyRequest_AreReadAsTheyWereWritten) {
  const MoveRequest move = {.request = 9,
                            .host = "user@beta",
                            .ranks = 2,
                            .state_bytes = 1,
                            .rank_device_bytes = 2,
                            .host_bytes = 3,
                            .data = "19 bytes"};
  EXPECT_EQ(MoveFrom(TextsOf(move)).value(), move);
  EXPECT_EQ(MoveFrom({}).value(), std::nullopt);
  EXPECT_FALSE(MoveFrom({"9"}).ok());
}

}  // namespace
}  // namespace geminid::trainer
