#include "daemon/holder/shelf.h"

#include <sys/eventfd.h>

#include "gtest/gtest.h"

namespace geminid::holder {
namespace {

base::UniqueFd Something() { return base::UniqueFd(::eventfd(0, EFD_CLOEXEC)); }

TEST(Shelf, Put_KeepsAndReplaces) {
  Shelf shelf;
  EXPECT_EQ(shelf.Handle({.op = Op::kPut, .name = "a"}, Something()), Shelf::Next::kGoOn);
  EXPECT_EQ(shelf.Handle({.op = Op::kPut, .name = "b"}, Something()), Shelf::Next::kGoOn);
  const int before = shelf.items().at("a").get();
  base::UniqueFd other = Something();
  const int after = other.get();
  EXPECT_EQ(shelf.Handle({.op = Op::kPut, .name = "a"}, std::move(other)), Shelf::Next::kGoOn);
  EXPECT_EQ(shelf.items().size(), 2u);
  EXPECT_NE(before, after);
  EXPECT_EQ(shelf.items().at("a").get(), after);
}

TEST(Shelf, Remove_ForgetsWhatIsThereAndMindsNothingElse) {
  Shelf shelf;
  shelf.Handle({.op = Op::kPut, .name = "a"}, Something());
  EXPECT_EQ(shelf.Handle({.op = Op::kRemove, .name = "b"}, {}), Shelf::Next::kGoOn);
  EXPECT_EQ(shelf.items().size(), 1u);
  EXPECT_EQ(shelf.Handle({.op = Op::kRemove, .name = "a"}, {}), Shelf::Next::kGoOn);
  EXPECT_TRUE(shelf.items().empty());
}

TEST(Shelf, DescriptorWhereNoneBelongs_OrNoneWhereOneDoes_IsRefused) {
  Shelf shelf;
  EXPECT_EQ(shelf.Handle({.op = Op::kPut, .name = "a"}, {}), Shelf::Next::kRefuse);
  EXPECT_EQ(shelf.Handle({.op = Op::kList}, Something()), Shelf::Next::kRefuse);
  EXPECT_EQ(shelf.Handle({.op = Op::kItem, .name = "a"}, {}), Shelf::Next::kRefuse);
  EXPECT_EQ(shelf.Handle({.op = Op::kEnd}, {}), Shelf::Next::kRefuse);
  EXPECT_TRUE(shelf.items().empty());
}

TEST(Shelf, Finish_ClosesAll) {
  Shelf shelf;
  shelf.Handle({.op = Op::kPut, .name = "a"}, Something());
  EXPECT_EQ(shelf.Handle({.op = Op::kFinish}, {}), Shelf::Next::kFinish);
  EXPECT_TRUE(shelf.items().empty());
}

}  // namespace
}  // namespace geminid::holder
