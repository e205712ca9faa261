<?php

declare(strict_types=1);

namespace Pronghorn;

/** What has happened on a connection. */
enum TcpEvent: int
{
    /** A client has connected; what the handler returns is its greeting. */
    case Connected = 0;
    /** The client has sent a message. */
    case Message = 1;
    /** The connection has ended. Nothing more is sent to the client. */
    case Closed = 2;
}
