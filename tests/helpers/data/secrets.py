"""The names of settings whose values are secrets."""

SECRET_SETTINGS = (
    "spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net",
    "spark.hadoop.fs.azure.account.oauth2.client.secret.shop.dfs.core.windows.net",
    "spark.hadoop.fs.azure.sas.fixed.token.shop.dfs.core.windows.net",
    "spark.hadoop.fs.azure.sas.landing.shop.blob.core.windows.net",
    "spark.hadoop.fs.gs.auth.service.account.private.key",
    "spark.hadoop.fs.gs.encryption.key",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.s3a.session.token",
    # The keys of SSE-C, the newer name and the older one.
    "spark.hadoop.fs.s3a.encryption.key",
    "spark.hadoop.fs.s3a.server-side-encryption.key",
    "spark.hadoop.hadoop.security.credstore.java-keystore-provider.password-file",
    "spark.sql.catalog.shop.password",
    "spark.shop.pin",
)
"""Settings of the engine for object stores, catalogs, and the user's own code."""

SECRET_JAVA_PROPERTY = "shop.keystore.passphrase"
