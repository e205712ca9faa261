<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\UploadFailed;

/** An uploaded file. The server removes it after the call, so what is to stay must be moved. */
final class File
{
    /**
     * @param string $name as the client gave it, without folders; never use it as a path
     * @param string $fullPath with the folders that the client gave
     * @param string $type as the client gave it; may be anything
     * @param int $size in bytes
     * @param int $error one of PHP's `UPLOAD_ERR_` numbers, 0 when the file is complete
     */
    private function __construct(
        public readonly string $name,
        public readonly string $fullPath,
        public readonly string $type,
        public readonly int $size,
        public readonly int $error,
        private string $path,
    ) {
    }

    /**
     * @internal
     *
     * @param array<string, string|int> $upload the keys of one file in `$_FILES`
     */
    public static function uploaded(array $upload): self
    {
        return new self(
            $upload['name'],
            $upload['full_path'],
            $upload['type'],
            $upload['size'],
            $upload['error'],
            $upload['tmp_name'],
        );
    }

    /**
     * Where the file is: in the server's folder, or where it was moved to.
     *
     * @throws Exception when the upload failed
     */
    public function path(): string
    {
        if ($this->error !== \UPLOAD_ERR_OK) {
            throw new UploadFailed("The file \"$this->name\" was not uploaded: UPLOAD_ERR number $this->error.");
        }

        return $this->path;
    }

    /**
     * Moves the file, over one that is there already. It gets the rights of a new file.
     *
     * @throws Exception when the upload failed or the file can't be moved there
     */
    public function moveTo(string $path): void
    {
        $from = $this->path();
        // rename() does not go from one stream wrapper to another, nor out of a folder of another
        // user. What a copy leaves behind goes with the call.
        if (!@\rename($from, $path) && !@\copy($from, $path)) {
            $reason = \error_get_last()['message'] ?? 'unknown reason';
            throw new UploadFailed("The file \"$this->name\" cannot be moved from $from to $path: $reason");
        }
        @\chmod($path, 0666 & ~\umask());
        $this->path = $path;
    }
}
