window.addEventListener("load", () => {
  SwaggerUIBundle({
    url: "api/v1/openapi.json",
    dom_id: "#docs",
    validatorUrl: null,
    docExpansion: "list",
    defaultModelsExpandDepth: 0,
    persistAuthorization: false,
    syntaxHighlight: false,
  });
});
