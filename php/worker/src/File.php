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
     * An upload for tests of handlers. Its file is below the folder for temporary files, and is
     * removed at the end of the process.
     *
     * @param string $name as a client would give it
     * @param int $error one of PHP's `UPLOAD_ERR_` numbers
     */
    public static function fake(
        string $name,
        string $contents = '',
        string $type = 'application/octet-stream',
        int $error = \UPLOAD_ERR_OK,
    ): self {
        $path = '';
        if ($error === \UPLOAD_ERR_OK) {
            $path = (string) \tempnam(\sys_get_temp_dir(), 'pronghorn-upload-');
            \file_put_contents($path, $contents);
            \register_shutdown_function(static fn (): bool => \is_file($path) && \unlink($path));
        }

        return new self(\basename($name), $name, $type, \strlen($contents), $error, $path);
    }

    /**
     * @internal
     *
     * @return array<string, string|int> as the server tells of it
     */
    public function entry(string $name): array
    {
        return [
            'kind' => 1,
            'error' => $this->error,
            'name' => $name,
            'value' => $this->fullPath,
            'type' => $this->type,
            'path' => $this->path,
            'size' => $this->size,
        ];
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
