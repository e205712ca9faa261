# The server in an image of PHP: docker build -t pronghorn .
#
# An application of yours begins with `FROM pronghorn`, or copies the two files below from it:
#   COPY . /app
# The server serves what it finds in /app, or by the pronghorn.yaml that lies there.

FROM rust:1.95-bookworm AS server
WORKDIR /src
COPY . .
RUN cargo build --profile production --locked --features all-drivers --bin pronghorn \
    && strip target/production/pronghorn

# What builds the extension stays behind in this stage.
FROM php:8.4-cli-bookworm AS extension
COPY --from=server /src/target/production/pronghorn /usr/local/bin/pronghorn
RUN pronghorn extension install

FROM php:8.4-cli-bookworm
RUN docker-php-ext-install opcache \
    && mv "$PHP_INI_DIR/php.ini-production" "$PHP_INI_DIR/php.ini"
COPY --from=server /src/target/production/pronghorn /usr/local/bin/pronghorn
COPY --from=extension /usr/local/lib/pronghorn /usr/local/lib/pronghorn
COPY php /usr/share/pronghorn/php
# Jobs, sessions and reports outlive a container where this is a volume.
ENV STATE_DIRECTORY=/var/lib/pronghorn
RUN install -d -m 700 -o www-data -g www-data /var/lib/pronghorn
WORKDIR /app
# www-data, as a number: Kubernetes can tell only of a number that it is not root.
USER 33:33
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["pronghorn", "status", "--alive"]
CMD ["pronghorn", "serve", "--listen", ":8080", "-o", "logs.mode=production"]
