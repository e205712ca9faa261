<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/** A cookie as a header sets it (RFC 6265, section 4.1). */
final class Cookie
{
    private const SAME_SITES = ['Lax', 'Strict', 'None'];

    /** @throws BadResponse when a part can't stand in a cookie */
    public static function write(
        string $name,
        string $value,
        ?int $maxAge,
        string $path,
        string $domain,
        bool $secure,
        bool $httpOnly,
        string $sameSite,
    ): string {
        if (!\preg_match('/^[!#-\'*+.0-9A-Z^-z|~-]+$/D', $name)) {
            $shown = Failure::cut($name, 100);
            throw new BadResponse("`$shown` can't name a cookie: write letters, digits, `-`, `_` and `.`.");
        }
        foreach ([$path, $domain] as $part) {
            if (\preg_match('/[\x00-\x1f\x7f;]/', $part)) {
                throw new BadResponse("A path or domain with control characters or a `;` can't be that of a cookie.");
            }
        }
        if (!\in_array($sameSite, self::SAME_SITES, true)) {
            throw new BadResponse("The cookie `$name` has `$sameSite` for SameSite: Lax, Strict or None is meant.");
        }
        if ($sameSite === 'None' && !$secure) {
            throw new BadResponse("Browsers refuse the cookie `$name`: with SameSite=None it must be secure.");
        }

        return "$name=" . \rawurlencode($value)
            . ($maxAge === null ? '' : "; Max-Age=$maxAge; Expires=" . self::date($maxAge))
            . "; Path=$path"
            . ($domain === '' ? '' : "; Domain=$domain")
            . ($secure ? '; Secure' : '')
            . ($httpOnly ? '; HttpOnly' : '')
            . "; SameSite=$sameSite";
    }

    /** For those who do not know Max-Age. */
    private static function date(int $maxAge): string
    {
        return \gmdate('D, d M Y H:i:s \G\M\T', $maxAge > 0 ? \time() + $maxAge : 0);
    }
}
