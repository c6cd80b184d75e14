#include "base/svg.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "tests/base/python_reads.h"

namespace geminid::base {
namespace {

TEST(SvgEscaped, AnyText_IsNeitherMarkupNorTheEndOfAnAttribute) {
  EXPECT_EQ(SvgEscaped("<script>alert('a' & \"b\")</script>"),
            "&lt;script&gt;alert(&#39;a&#39; &amp; &quot;b&quot;)&lt;/script&gt;");
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  const std::string escaped = SvgEscaped(all);
  EXPECT_EQ(escaped.find_first_of("<>\"'\n\t"), std::string::npos);
  EXPECT_TRUE(PythonReads("<a b=\"" + escaped + "\">" + escaped + "</a>", "xml.parse(f)"));
  EXPECT_EQ(SvgEscaped("Schicht ü"), "Schicht ü");
}

TEST(Svg, Picture_IsXmlWithItsTitles) {
  constexpr SvgKey kKeys[] = {{"#123456", "one & two"}, {"#654321", "three"}};
  std::string svg = SvgHead(100, 50, "a < b");
  SvgText(1, 2, "end", "x > y", &svg);
  SvgLine(0, 0, 1, 1, " stroke-width=\"2\"", &svg);
  SvgRect(1, 1, 0, 5, "#123456", "narrow & \"quoted\"", &svg);
  SvgStairs({{0, 1, 2, 3}, {1, 2, 1, 3}}, "#123456", "stairs", &svg);
  SvgLegend(10, 20, kKeys, &svg);
  svg += "</svg>\n";
  EXPECT_TRUE(
      PythonReads(svg,
                  "t = [e.text for e in xml.parse(f).iter() if e.tag.endswith('title')]; "
                  "assert t == ['a < b', 'narrow & ' + chr(34) + 'quoted' + chr(34), 'stairs']"));
}

TEST(SvgStairs, Outline_GoesAboveToTheRightAndBelowBack) {
  std::string svg;
  SvgStairs({{0, 10, 4, 9}, {10, 30, 2, 8}}, "red", "", &svg);
  EXPECT_NE(svg.find("points=\"0.00,4.00 10.00,4.00 10.00,2.00 30.00,2.00 "
                     "30.00,8.00 10.00,8.00 10.00,9.00 0.00,9.00 \""),
            std::string::npos)
      << svg;
}

}  // namespace
}  // namespace geminid::base
