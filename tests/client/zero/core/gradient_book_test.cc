#include "client/zero/core/gradient_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Chunk 0 has "once" and "other", whose gradients replace the weights. Chunk 1 has "tied",
// separate.
GradientBook MakeBook() {
  return GradientBook({{"once", 0}, {"other", 0}, {"tied", 1, true, 2, true}, {"frozen", 1, false}},
                      2);
}

TEST(GradientBook, ChunkOfAParameterWithASeparateGradient_HasAPlaceForAllOfItsOwn) {
  const GradientBook book = MakeBook();
  EXPECT_EQ(book.StorageOf(0), 0u);
  EXPECT_EQ(book.StorageOf(1), 2u);
  EXPECT_THAT(book.owners(), ElementsAre(0, 1, 1));
}

TEST(GradientBook, OfAStep_KnowsHowOftenEachChunkWasReduced) {
  GradientBook book = MakeBook();
  EXPECT_FALSE(book.HasGradient(0));
  book.Write(1);
  EXPECT_TRUE(book.HasGradient(0));
  EXPECT_FALSE(book.HasGradient(1));
  book.Reduce(0);
  book.BeginMicroBatch();
  EXPECT_FALSE(book.HasGradient(0));
  EXPECT_EQ(book.reductions(0), 1);
  EXPECT_FALSE(book.AllReduced(1));
  book.Reduce(1);
  EXPECT_TRUE(book.AllReduced(1));
  book.BeginMicroBatch();
  book.Reduce(0);
  EXPECT_EQ(book.reductions(0), 2);
  EXPECT_FALSE(book.AllReduced(2));
  book.BeginStep();
  EXPECT_EQ(book.reductions(0), 0);
  EXPECT_TRUE(book.AllReduced(0));
}

TEST(GradientBook, ChunkIsComplete_OnceAllItsTrainedParametersAre) {
  GradientBook book = MakeBook();
  book.Write(0);
  EXPECT_FALSE(book.Complete(0));
  book.Write(1);
  EXPECT_TRUE(book.Complete(0));
  book.Write(2);
  EXPECT_FALSE(book.Complete(1));
  book.Write(2);
  EXPECT_TRUE(book.Complete(1));
  book.BeginMicroBatch();
  EXPECT_FALSE(book.Complete(0));
  EXPECT_TRUE(book.written_in_step(0));
  book.BeginStep();
  EXPECT_FALSE(book.written_in_step(0));
}

TEST(GradientBook, WeightUnderItsGradient_MayNotBeUsedUntilThatHasLeft) {
  GradientBook book = MakeBook();
  book.Write(0);
  const absl::Status status = book.CheckWeight(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("'once'"));
  EXPECT_TRUE(book.CheckWeight(1).ok());
  book.Write(1);
  book.Reduce(0);
  EXPECT_TRUE(book.CheckWeight(0).ok());
  book.Write(2);
  EXPECT_TRUE(book.CheckWeight(2).ok()) << "its gradient is elsewhere";
}

TEST(GradientBook, GradientThatIsOneTooMany_IsRefusedByName) {
  GradientBook book = MakeBook();
  EXPECT_TRUE(book.CheckGradient(0).ok());
  book.Write(0);
  EXPECT_THAT(std::string(book.CheckGradient(0).message()), HasSubstr("backward_uses"));
  EXPECT_THAT(std::string(book.CheckGradient(3).message()), HasSubstr("frozen"));
  book.Write(2);
  book.Write(2);
  EXPECT_TRUE(book.CheckGradient(2).ok()) << "it has not left yet";
  book.Reduce(1);
  EXPECT_FALSE(book.CheckGradient(2).ok());
}

TEST(GradientBook, GradientAddedToInThePlaceOfItsWeight_IsCompleteAfterAllItsUses) {
  GradientBook book({{"tied", 0, true, 2}}, 1);
  EXPECT_FALSE(book.IsSeparate(0));
  book.Write(0);
  EXPECT_FALSE(book.WeightIsThere(0));
  EXPECT_TRUE(book.CheckGradient(0).ok());
  EXPECT_FALSE(book.Complete(0));
  book.Write(0);
  EXPECT_TRUE(book.Complete(0));
  EXPECT_FALSE(book.CheckGradient(0).ok());
}

TEST(GradientBook, AnyNumberOfUses_IsCompleteOnlyAtTheEnd) {
  GradientBook book({{"shared", 0, true, 0}}, 1);
  book.Write(0);
  EXPECT_TRUE(book.IsSeparate(0));
  EXPECT_FALSE(book.Complete(0));
}

}  // namespace
}  // namespace geminid::zero
