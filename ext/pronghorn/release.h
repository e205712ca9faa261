/* One number for the server, this extension and the PHP package; a test compares them. */
#ifndef PRONGHORN_RELEASE_H
#define PRONGHORN_RELEASE_H

#define PRONGHORN_VERSION "0.2.0"

#endif
