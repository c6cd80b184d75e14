#include "training/launch/state_pieces.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace geminid::trainer {
namespace {

constexpr uint64_t kAvailable = uint64_t{1} << 30;

class StatePieces : public ::testing::Test {
 protected:
  void SetUp() override {
    auto from = HandoverMemory::Create(), to = HandoverMemory::Create();
    ASSERT_TRUE(from.ok() && to.ok());
    from_ = *std::move(from);
    to_ = *std::move(to);
  }

  // State of so many bytes; adjacent bytes differ.
  Handover Leave(uint64_t bytes) {
    EXPECT_TRUE(
        from_->Begin({.ranks_before = 1, .ranks_after = 1, .bytes = bytes}, kAvailable).ok());
    const auto mapping = from_->Map(bytes);
    EXPECT_TRUE(mapping.ok()) << mapping.status();
    const auto state = HandoverMemory::StateIn(*mapping);
    for (size_t i = 0; i < state.size(); ++i) state[i] = static_cast<std::byte>(i * 7 + i / 251);
    from_->Complete();
    return *from_->complete();
  }

  std::vector<std::string> Pieces() {
    auto reader = StateReader::Of(*from_);
    EXPECT_TRUE(reader.ok()) << reader.status();
    std::vector<std::string> pieces;
    for (std::string piece = reader->Next(); !piece.empty(); piece = reader->Next()) {
      pieces.push_back(piece);
    }
    return pieces;
  }

  static std::string StateOf(const HandoverMemory& memory, uint64_t bytes) {
    const auto mapping = memory.Map(bytes);
    if (!mapping.ok()) return mapping.status().ToString();
    const auto state = HandoverMemory::StateIn(*mapping);
    return std::string(reinterpret_cast<const char*>(state.data()), state.size());
  }

  std::unique_ptr<HandoverMemory> from_, to_;
};

TEST_F(StatePieces, OfAnyNumberOfBytes_ArriveWholeWithTheLastOne) {
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{kPieceBytes}, 2 * kPieceBytes + 77}) {
    const Handover handover = Leave(bytes);
    auto writer = StateWriter::Of(to_.get(), handover, kAvailable);
    ASSERT_TRUE(writer.ok()) << writer.status();
    uint64_t sent = 0;
    for (const std::string& piece : Pieces()) {
      EXPECT_EQ(to_->complete(), std::nullopt) << "it is not whole";
      ASSERT_TRUE(writer->Add(piece).ok());
      sent += piece.size();
    }
    EXPECT_EQ(sent, BytesOnTheWay(handover));
    ASSERT_TRUE(to_->complete().has_value()) << bytes;
    EXPECT_EQ(to_->complete()->number, handover.number);
    EXPECT_EQ(StateOf(*to_, bytes), StateOf(*from_, bytes));
  }
}

TEST_F(StatePieces, OfWhichAByteHasChanged_AreRefused) {
  const Handover handover = Leave(kPieceBytes + 5);
  auto writer = StateWriter::Of(to_.get(), handover, kAvailable);
  ASSERT_TRUE(writer.ok());
  std::vector<std::string> pieces = Pieces();
  pieces[0][12] = static_cast<char>(pieces[0][12] ^ 1);
  absl::Status status;
  for (const std::string& piece : pieces) status.Update(writer->Add(piece));
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(to_->complete(), std::nullopt);
}

TEST_F(StatePieces, OfMemoryWithoutState_AreNone) { EXPECT_FALSE(StateReader::Of(*from_).ok()); }

}  // namespace
}  // namespace geminid::trainer
