#include "daemon/holder/descriptor_table.h"

#include <sys/eventfd.h>

#include "gtest/gtest.h"

namespace geminid::holder {
namespace {

base::UniqueFd Something() { return base::UniqueFd(::eventfd(0, EFD_CLOEXEC)); }

TEST(DescriptorTable, Put_KeepsAndReplaces) {
  DescriptorTable table;
  EXPECT_EQ(table.Handle({.op = Op::kPut, .name = "a"}, Something()), DescriptorTable::Next::kGoOn);
  EXPECT_EQ(table.Handle({.op = Op::kPut, .name = "b"}, Something()), DescriptorTable::Next::kGoOn);
  const int before = table.items().at("a").get();
  base::UniqueFd other = Something();
  const int after = other.get();
  EXPECT_EQ(table.Handle({.op = Op::kPut, .name = "a"}, std::move(other)),
            DescriptorTable::Next::kGoOn);
  EXPECT_EQ(table.items().size(), 2u);
  EXPECT_NE(before, after);
  EXPECT_EQ(table.items().at("a").get(), after);
}

TEST(DescriptorTable, Remove_ForgetsWhatIsThereAndMindsNothingElse) {
  DescriptorTable table;
  table.Handle({.op = Op::kPut, .name = "a"}, Something());
  EXPECT_EQ(table.Handle({.op = Op::kRemove, .name = "b"}, {}), DescriptorTable::Next::kGoOn);
  EXPECT_EQ(table.items().size(), 1u);
  EXPECT_EQ(table.Handle({.op = Op::kRemove, .name = "a"}, {}), DescriptorTable::Next::kGoOn);
  EXPECT_TRUE(table.items().empty());
}

TEST(DescriptorTable, DescriptorWhereNoneBelongs_OrNoneWhereOneDoes_IsRefused) {
  DescriptorTable table;
  EXPECT_EQ(table.Handle({.op = Op::kPut, .name = "a"}, {}), DescriptorTable::Next::kRefuse);
  EXPECT_EQ(table.Handle({.op = Op::kList}, Something()), DescriptorTable::Next::kRefuse);
  EXPECT_EQ(table.Handle({.op = Op::kItem, .name = "a"}, {}), DescriptorTable::Next::kRefuse);
  EXPECT_EQ(table.Handle({.op = Op::kEnd}, {}), DescriptorTable::Next::kRefuse);
  EXPECT_TRUE(table.items().empty());
}

TEST(DescriptorTable, Finish_ClosesAll) {
  DescriptorTable table;
  table.Handle({.op = Op::kPut, .name = "a"}, Something());
  EXPECT_EQ(table.Handle({.op = Op::kFinish}, {}), DescriptorTable::Next::kFinish);
  EXPECT_TRUE(table.items().empty());
}

}  // namespace
}  // namespace geminid::holder
