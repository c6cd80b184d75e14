// Which users can replace a program's socket by their own.
#ifndef GEMINID_BASE_SOCKET_FOLDER_H_
#define GEMINID_BASE_SOCKET_FOLDER_H_

#include <sys/types.h>

#include <span>
#include <string>

namespace geminid::base {

// Why users other than root and `trusted` may remove or replace files in the folder of `path`:
// "folder /tmp has mode 1777, so others may create files in it". Empty if they may not. Parent
// folders count too, if others may rename files in them. Access control lists and capabilities are
// not checked.
std::string DescribeOtherOwners(const std::string& path, std::span<const uid_t> trusted);

}  // namespace geminid::base

#endif  // GEMINID_BASE_SOCKET_FOLDER_H_
