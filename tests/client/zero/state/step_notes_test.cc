#include "client/zero/state/step_notes.h"

#include <gtest/gtest.h>

#include <cstring>

namespace geminid::zero {
namespace {

constexpr size_t kTensors = 3;

StepNote Note(uint64_t step) {
  StepNote note;
  note.scalars = {.step = step, .learning_rate = 0.1, .grad_scale = 0.5, .gradient_norm = 7};
  note.rates.resize(kTensors);
  note.rates[0].learning_rate = 0.25;
  note.rates[1].weight_decay = 0;
  note.rates[2].skip = true;
  return note;
}

class StepNotesTest : public ::testing::Test {
 protected:
  std::vector<uint64_t> words_ =
      std::vector<uint64_t>(StepNotes::BytesFor(kTensors) / sizeof(uint64_t), 0);
  std::byte* memory_ = reinterpret_cast<std::byte*>(words_.data());
  StepNotes notes_{memory_, kTensors};
};

TEST_F(StepNotesTest, Note_IsReadAgainByItsEpoch) {
  notes_.Write(8, Note(20));
  StepNote note;
  ASSERT_TRUE(StepNotes(memory_, kTensors).Read(8, &note).ok());
  EXPECT_EQ(note.scalars.step, 20u);
  EXPECT_EQ(note.scalars.learning_rate, 0.1);
  EXPECT_EQ(note.scalars.grad_scale, 0.5);
  EXPECT_EQ(note.scalars.gradient_norm, 7);
  ASSERT_EQ(note.rates.size(), kTensors);
  EXPECT_EQ(note.rates[0].learning_rate, 0.25);
  EXPECT_EQ(note.rates[0].weight_decay, std::nullopt);
  EXPECT_EQ(note.rates[1].learning_rate, std::nullopt);
  EXPECT_EQ(note.rates[1].weight_decay, 0.0);
  EXPECT_TRUE(note.rates[2].skip);
  EXPECT_FALSE(note.rates[1].skip);
}

// This note may be needed until the next step's record is written.
TEST_F(StepNotesTest, NextNote_LeavesTheOneBefore) {
  notes_.Write(8, Note(20));
  notes_.Write(9, Note(21));
  StepNote note;
  ASSERT_TRUE(notes_.Read(8, &note).ok());
  EXPECT_EQ(note.scalars.step, 20u);
  notes_.Write(10, Note(22));
  EXPECT_FALSE(notes_.Read(8, &note).ok());
  ASSERT_TRUE(notes_.Read(10, &note).ok());
  EXPECT_EQ(note.scalars.step, 22u);
}

TEST_F(StepNotesTest, NoteThatIsNotWhole_IsNotRead) {
  StepNote note;
  EXPECT_FALSE(notes_.Read(0, &note).ok());
  EXPECT_FALSE(notes_.Read(1, &note).ok());
  notes_.Write(8, Note(20));
  for (size_t at = 0; at < StepNotes::BytesFor(kTensors) / 2; ++at) {
    memory_[at] ^= std::byte{1};
    EXPECT_FALSE(notes_.Read(8, &note).ok()) << "byte " << at;
    memory_[at] ^= std::byte{1};
  }
  EXPECT_TRUE(notes_.Read(8, &note).ok());
}

}  // namespace
}  // namespace geminid::zero
