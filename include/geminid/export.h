// What libgeminid shows to those who link it; everything else in it is hidden.
#ifndef GEMINID_EXPORT_H_
#define GEMINID_EXPORT_H_

#define GEMINID_EXPORT __attribute__((visibility("default")))

#endif  // GEMINID_EXPORT_H_
